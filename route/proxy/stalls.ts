/** Clients that take nothing of what waits for them: their connections end, so that nobody holds a replica for long. */
import type { ServerResponse } from 'node:http';

interface Watched {
  taken: number;
  at: number;
}

export class Stalls {
  private readonly watched = new Map<ServerResponse, Watched>();
  private readonly timer: NodeJS.Timeout;
  private readonly milliseconds: number;

  constructor(milliseconds: number) {
    this.milliseconds = milliseconds;
    this.timer = setInterval(() => this.look(), milliseconds / 8).unref();
  }

  add(response: ServerResponse): void {
    this.watched.set(response, { taken: 0, at: performance.now() });
  }

  delete(response: ServerResponse): void {
    this.watched.delete(response);
  }

  close(): void {
    clearInterval(this.timer);
  }

  private look(): void {
    const now = performance.now();
    for (const [{ socket }, watched] of this.watched) {
      if (socket === null) continue;
      // Bytes that wait count as written.
      const taken = socket.bytesWritten - socket.writableLength;
      if (socket.writableLength === 0 || taken !== watched.taken) watched.at = now;
      watched.taken = taken;
      if (now - watched.at >= this.milliseconds) socket.destroy();
    }
  }
}
