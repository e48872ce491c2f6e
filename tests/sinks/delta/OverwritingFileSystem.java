import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.nio.file.Files;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A folder that behaves as an object store does: a file appears when its stream is closed, and
 * replaces one that has appeared in the meantime.
 */
public class OverwritingFileSystem extends RawLocalFileSystem {
  public URI getUri() {
    return URI.create("overwriting:///");
  }

  public FSDataOutputStream create(
      final Path path, FsPermission permission, boolean overwrite, int buffer, short replication,
      long block, Progressable progress) throws IOException {
    return this.create(path, overwrite, buffer, replication, block, progress);
  }

  public FSDataOutputStream create(
      final Path path, boolean overwrite, int buffer, short replication, long block,
      Progressable progress) throws IOException {
    if (!overwrite && this.exists(path)) {
      throw new FileAlreadyExistsException(path.toString());
    }
    final java.nio.file.Path target = this.pathToFile(path).toPath();
    OutputStream collected = new ByteArrayOutputStream() {
      public void close() throws IOException {
        Files.createDirectories(target.getParent());
        Files.write(target, this.toByteArray());
      }
    };
    return new FSDataOutputStream(collected, this.statistics);
  }
}
