// Rendezvous socket: tests of the fixtures connect when they run, and wait for a command.
import { once } from "node:events";
import { createServer } from "node:net";

/** Opens the rendezvous socket named by the environment. */
export async function meetingPoint() {
  const server = createServer().listen(process.env.HEELER_FIXTURE_MEET);
  await once(server, "listening");
  const guests = [];
  server.on("connection", (socket) => {
    // A test killed with unread data in its socket resets the connection.
    socket.on("error", () => {});
    const gone = once(socket, "close");
    guests.push({ letGo: () => socket.end(), gone: () => { socket.resume(); return gone; } });
    server.emit("guest");
  });
  return {
    /** Waits for the next test to connect. */
    async next() {
      while (guests.length === 0) await once(server, "guest");
      return guests.shift();
    },
    close: () => server.close(),
  };
}
