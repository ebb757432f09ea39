// Rendezvous socket: tests of the fixtures connect when they run, and wait for a command.
import { once } from "node:events";
import { createServer } from "node:net";

/** Opens the meeting point that the environment names. */
export async function meetingPoint() {
  const server = createServer().listen(process.env.HEELER_FIXTURE_MEET);
  await once(server, "listening");
  const guests = [];
  server.on("connection", (socket) => {
    // A test that is killed with unread data in its socket resets the connection.
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
