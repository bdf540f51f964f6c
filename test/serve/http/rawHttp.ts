/** HTTP as no client library would send it: bytes on a socket. */
import { connect, type Socket } from 'node:net';

export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export function parseAnswer(text: string): RawAnswer {
  const at = text.indexOf('\r\n\r\n');
  const [first = '', ...lines] = text.slice(0, at).split('\r\n');
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
  return { status: Number(first.split(' ')[1]), headers: Object.fromEntries(headers), body: text.slice(at + 4) };
}

export interface RawConnection {
  readonly socket: Socket;
  /** All that has come. */
  text(): string;
  /** Settles when the server has closed the connection. */
  readonly closed: Promise<string>;
}

export async function openRaw(url: string): Promise<RawConnection> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port) });
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text)));
  socket.on('error', () => undefined);
  await new Promise((resolve) => socket.once('connect', resolve));
  return { socket, text: () => text, closed };
}

/** Sends these bytes, and waits until the server closes the connection. */
export async function rawAnswer(url: string, ...parts: readonly (string | Buffer)[]): Promise<RawAnswer> {
  const { socket, closed } = await openRaw(url);
  for (const part of parts) socket.write(part);
  return parseAnswer(await closed);
}
