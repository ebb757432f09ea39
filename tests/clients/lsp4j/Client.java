// A client on Eclipse lsp4j, which answers no request of a method that has a handler for notifications. It runs all
// tests twice and prints what it has handled, a line for each run: java -cp 'LIBRARIES/*' Client.java PROGRAM…
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.logging.LogManager;
import org.eclipse.lsp4j.jsonrpc.Launcher;
import org.eclipse.lsp4j.jsonrpc.services.JsonNotification;
import org.eclipse.lsp4j.jsonrpc.services.JsonRequest;

public class Client {
  public interface Server {
    @JsonRequest("initialize")
    CompletableFuture<JsonObject> initialize(JsonObject params);

    @JsonRequest("testing/runTests")
    CompletableFuture<JsonObject> run(JsonObject params);

    @JsonNotification("exit")
    void exit(JsonObject params);
  }

  /** What was handled of one run, on all connections. */
  static class Handled {
    final Set<String> ended = new HashSet<>();
    final Set<String> connections = new HashSet<>();
    int completions;
    int late;
    int twice;
    int startsBehindEnds;
  }

  static Handled handled = new Handled();

  public static class Handlers {
    final String connection;

    Handlers(String connection) {
      this.connection = connection;
    }

    @JsonNotification("testing/testUpdates/tests")
    public void updates(JsonObject params) {
      synchronized (Client.class) {
        if (params.get("changes").isJsonNull()) {
          handled.completions += 1;
          return;
        }
        for (JsonElement change : params.getAsJsonArray("changes")) {
          update(change.getAsJsonObject().getAsJsonObject("node"));
        }
      }
    }

    private void update(JsonObject node) {
      if (!node.get("node-type").getAsString().equals("action")) return;
      handled.connections.add(connection);
      handled.late += handled.completions > 0 ? 1 : 0;
      String uid = node.get("uid").getAsString();
      if (node.get("execution-state").getAsString().equals("in-progress")) {
        handled.startsBehindEnds += handled.ended.contains(uid) ? 1 : 0;
      } else if (!handled.ended.add(uid)) {
        handled.twice += 1;
      }
    }

    @JsonNotification("testing/testUpdates/attachments")
    public void attachments(JsonObject params) {}

    @JsonNotification("client/log")
    public void log(JsonObject params) {}

    @JsonNotification("telemetry/update")
    public void telemetry(JsonObject params) {}
  }

  static Server connect(Socket socket, String connection) {
    try {
      socket.setTcpNoDelay(true);
      Launcher<Server> launcher = new Launcher.Builder<Server>()
          .setLocalService(new Handlers(connection))
          .setRemoteInterface(Server.class)
          .setInput(socket.getInputStream())
          .setOutput(socket.getOutputStream())
          .create();
      launcher.startListening();
      return launcher.getRemoteProxy();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static ServerSocket listen() throws IOException {
    return new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
  }

  static JsonObject json(String text) {
    return JsonParser.parseString(text).getAsJsonObject();
  }

  public static void main(String[] programs) throws Exception {
    // The library logs that it does not know the method of a barrier.
    LogManager.getLogManager().reset();
    ServerSocket callback = listen();
    Thread acceptor = new Thread(() -> {
      for (int number = 1; ; number++) {
        try {
          connect(callback.accept(), "callback " + number);
        } catch (IOException closed) {
          return;
        }
      }
    });
    acceptor.setDaemon(true);
    acceptor.start();
    ServerSocket listener = listen();
    List<String> words = new ArrayList<>(List.of(System.getenv("HEELER")));
    words.addAll(List.of(programs));
    words.addAll(List.of("--server", "--client-port", String.valueOf(listener.getLocalPort())));
    Process heeler = new ProcessBuilder(words).inheritIO().start();
    Server server = connect(listener.accept(), "main");
    long process = ProcessHandle.current().pid();
    server.initialize(json(String.format(
        "{\"processId\":%d,\"clientInfo\":{\"name\":\"lsp4j\",\"version\":\"1\"},\"capabilities\":{\"testing\":"
            + "{\"debuggerProvider\":false,\"attachmentsSupport\":true,\"callbackProvider\":{\"port\":%d}}}}",
        process, callback.getLocalPort()))).get();
    for (int run = 1; run <= 2; run++) {
      synchronized (Client.class) {
        handled = new Handled();
      }
      server.run(json("{\"runId\":\"00000000-0000-4000-8000-00000000000" + run + "\"}")).get();
      synchronized (Client.class) {
        System.out.printf("run %d: %d ended, %d completion, %d late, %d twice, %d starts behind ends, on main: %b%n", run,
            handled.ended.size(), handled.completions, handled.late, handled.twice, handled.startsBehindEnds,
            handled.connections.contains("main"));
      }
    }
    server.exit(new JsonObject());
    System.exit(heeler.waitFor());
  }
}
