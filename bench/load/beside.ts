/** What disturbs a server beside a load: connections that say nothing, readers that stop. */
import net from 'node:net';
import tls from 'node:tls';
import { type ClientOptions, LoadClient } from './client.js';
import { type BodyOptions, bodyOf, pathOf } from './runner.js';

/** Connections that have asked once, and say nothing since. */
export class IdleConnections {
  private readonly sockets: net.Socket[] = [];
  private isLeaving = false;
  /** How many the server has closed. */
  closed = 0;

  /** Resolves when all have their answer; rejects where one cannot connect. */
  async open({ baseUrl }: ClientOptions, count: number): Promise<void> {
    const { hostname, port, protocol } = new URL(baseUrl);
    const host = hostname.replace(/^\[|\]$/g, '');
    const isTls = protocol === 'https:';
    const connect = (): Promise<void> =>
      new Promise((resolve, reject) => {
        const to = { host, port: port === '' ? (isTls ? 443 : 80) : Number(port) };
        const socket = isTls ? tls.connect({ ...to, servername: host }) : net.connect(to);
        socket.on('error', reject);
        socket.on('close', () => {
          if (!this.isLeaving) this.closed++;
        });
        socket.once('data', () => resolve());
        socket.write(`GET /v1/models HTTP/1.1\r\nhost: ${host}\r\n\r\n`);
        this.sockets.push(socket);
      });
    // A queue of connections that wait to be accepted is short.
    for (let opened = 0; opened < count; opened += 64)
      await Promise.all(Array.from({ length: Math.min(64, count - opened) }, connect));
  }

  close(): void {
    this.isLeaving = true;
    for (const socket of this.sockets) socket.destroy();
  }
}

/** Streams whose readers stop after their first tokens, and hold on. */
export class StalledReaders {
  private readonly client: LoadClient;

  constructor(options: ClientOptions) {
    this.client = new LoadClient(options);
  }

  /** `longest`: tokens that each asks for. */
  begin(body: BodyOptions, count: number, longest: number): void {
    for (let i = 0; i < count; i++)
      void this.client.send({
        path: pathOf(body),
        body: bodyOf({ ...body, isStream: true, ignoreEos: true }, 2_000_000 + i, { prompt: 16, answer: longest }),
        stallAfter: 4,
      });
  }

  close(): void {
    this.client.close();
  }
}
