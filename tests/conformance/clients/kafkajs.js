// KafkaJS with its default settings: node kafkajs.js produce|consume SERVERS TOPIC COUNT
// Produces the values 0, 1, 2 …, or prints the values of a topic, one in a line.
process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const { Kafka, logLevel } = require("kafkajs");

const [what, servers, topic, count] = process.argv.slice(2);
const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });

async function produce() {
  const producer = kafka.producer();
  await producer.connect();
  const messages = [...Array(Number(count)).keys()].map((number) => ({ value: String(number) }));
  await producer.send({ topic, messages });
  await producer.disconnect();
}

async function consume() {
  const consumer = kafka.consumer({ groupId: `${topic}-kafkajs` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let read = 0;
  await new Promise((done) =>
    consumer.run({
      eachMessage: async ({ message }) => {
        console.log(message.value.toString());
        if (++read === Number(count)) done();
      },
    })
  );
  await consumer.disconnect();
}

(what === "produce" ? produce() : consume()).catch((error) => {
  console.error(error);
  process.exit(1);
});
