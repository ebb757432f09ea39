// Where tests of the fixtures say that they run, and wait for a word.
import { once } from "node:events";
import { createServer } from "node:net";

/** Opens the meeting point that the environment names. */
export async function meetingPoint() {
  const server = createServer().listen(process.env.HEELER_FIXTURE_MEET);
  await once(server, "listening");
  const guests = [];
  server.on("connection", (socket) => {
    // A test that is killed with something unread in its socket resets the connection.
    socket.on("error", () => {});
    const gone = once(socket, "close");
    guests.push({ letGo: () => socket.end(), gone: () => { socket.resume(); return gone; } });
    server.emit("guest");
  });
  return {
    /** Waits for the next test to come. */
    async next() {
      while (guests.length === 0) await once(server, "guest");
      return guests.shift();
    },
    close: () => server.close(),
  };
}
