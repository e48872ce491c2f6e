// Three Go libraries with their default settings.
//
//	clients franz-go|sarama|kafka-go produce|consume SERVERS TOPIC COUNT
//
// Produces the values 0, 1, 2 …, or prints the values of partition 0, one in a line.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	library, what, topic := os.Args[1], os.Args[2], os.Args[4]
	servers := strings.Split(os.Args[3], ",")
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	values := make([]string, count)
	for number := range values {
		values[number] = strconv.Itoa(number)
	}
	switch library + " " + what {
	case "franz-go produce":
		client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DefaultProduceTopic(topic))
		check(err)
		var records []*kgo.Record
		for _, value := range values {
			records = append(records, kgo.StringRecord(value))
		}
		check(client.ProduceSync(ctx, records...).FirstErr())
		client.Close()
	case "franz-go consume":
		client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumeTopics(topic))
		check(err)
		for read := 0; read < count; {
			fetches := client.PollFetches(ctx)
			check(fetches.Err())
			for _, record := range fetches.Records() {
				fmt.Println(string(record.Value))
				read++
			}
		}
		client.Close()
	case "sarama produce":
		config := sarama.NewConfig()
		config.Producer.Return.Successes = true // as its synchronous producer has to have it
		producer, err := sarama.NewSyncProducer(servers, config)
		check(err)
		var messages []*sarama.ProducerMessage
		for _, value := range values {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: topic, Value: sarama.StringEncoder(value),
			})
		}
		check(producer.SendMessages(messages))
		check(producer.Close())
	case "sarama consume":
		consumer, err := sarama.NewConsumer(servers, nil)
		check(err)
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		check(err)
		for range count {
			select {
			case message := <-partition.Messages():
				fmt.Println(string(message.Value))
			case <-ctx.Done():
				log.Fatal(ctx.Err())
			}
		}
		check(consumer.Close())
	case "kafka-go produce":
		writer := kafka.Writer{Addr: kafka.TCP(servers...), Topic: topic}
		var messages []kafka.Message
		for _, value := range values {
			messages = append(messages, kafka.Message{Value: []byte(value)})
		}
		check(writer.WriteMessages(ctx, messages...))
		check(writer.Close())
	case "kafka-go consume":
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: servers, Topic: topic})
		for range count {
			message, err := reader.ReadMessage(ctx)
			check(err)
			fmt.Println(string(message.Value))
		}
		check(reader.Close())
	default:
		log.Fatalf("unknown: %s %s", library, what)
	}
}
