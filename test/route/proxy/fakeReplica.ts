/** A server of models that does as it is told: answers, lies, hangs, breaks off. In this process. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Seen {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

export type Handle = (seen: Seen, response: ServerResponse, request: IncomingMessage) => void;

const OWN: readonly string[] = ['/health', '/v1/models', '/metrics'];

export class FakeReplica {
  readonly seen: Seen[] = [];
  readonly loaded = new Map<string, string>();
  health = 200;
  healthText = '';
  /** Paths that never answer. */
  readonly hangs = new Set<string>();
  metrics = 'vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_waiting{engine="0"} 0\n';
  /** What is answered to /v1/models, instead of what is there. */
  models: string | undefined;
  /** Whether what is not listed is refused. */
  isHonest = true;
  onLoad: (name: string, path: string) => { readonly status: number; readonly text: string } | undefined = () =>
    undefined;
  /** Changes of adapters are made once it resolves. */
  gate: Promise<void> = Promise.resolve();
  handle: Handle = (seen, response) => this.answer(seen, response);
  readonly name: string;
  readonly base: string;
  private readonly server: Server;

  constructor(name: string, base = 'base') {
    this.name = name;
    this.base = base;
    this.server = createServer((request, response) => this.take(request, response));
  }

  static async open(name: string, base?: string): Promise<FakeReplica> {
    const replica = new FakeReplica(name, base);
    await replica.listen();
    return replica;
  }

  async listen(port = 0): Promise<void> {
    await new Promise<void>((resolve) => this.server.listen(port, '127.0.0.1', resolve));
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Requests but probes. */
  get asked(): readonly Seen[] {
    return this.seen.filter(({ path }) => !OWN.includes(path) && !path.includes('lora_adapter'));
  }

  /** Goes away, as a process that is killed. */
  async kill(): Promise<void> {
    if (!this.server.listening) return;
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  /** The answer to a completion: who gave it, to what. */
  answer({ body }: Seen, response: ServerResponse): void {
    const { model, prompt, stream } = JSON.parse(body) as { model?: string; prompt?: string; stream?: boolean };
    if (this.isHonest && model !== undefined && model !== this.base && !this.loaded.has(model)) {
      const error = {
        message: 'no such model',
        type: 'invalid_request_error',
        param: 'model',
        code: 'model_not_found',
      };
      response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
      return;
    }
    const of = (text: string): string => JSON.stringify({ model, choices: [{ text }] });
    if (stream !== true) {
      response.setHeader('content-type', 'application/json');
      response.end(of(`answer to ${String(prompt)}`));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const word of ['answer ', 'to ', String(prompt)]) response.write(`data: ${of(word)}\n\n`);
    response.end('data: [DONE]\n\n');
  }

  private take(request: IncomingMessage, response: ServerResponse): void {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      const path = request.url ?? '';
      const seen: Seen = { path, headers: request.headers, body };
      this.seen.push(seen);
      if (this.hangs.has(path)) return;
      const reply = (status: number, text: string): void => void response.writeHead(status).end(text);
      switch (path) {
        case '/health':
          return reply(this.health, this.healthText);
        case '/metrics':
          return reply(200, this.metrics);
        case '/v1/models':
          return reply(200, this.models ?? this.list());
        case '/v1/load_lora_adapter':
        case '/v1/unload_lora_adapter':
          return void this.gate.then(() => this.change(path, body, reply));
        default:
          return this.handle(seen, response, request);
      }
    });
  }

  private list(): string {
    const data = [
      { id: this.base, object: 'model' } as const,
      ...[...this.loaded.keys()].map((id) => ({ id, parent: this.base })),
    ];
    return JSON.stringify({ object: 'list', data });
  }

  private change(path: string, body: string, reply: (status: number, text: string) => void): void {
    const { lora_name: name, lora_path: at = '' } = JSON.parse(body) as { lora_name: string; lora_path?: string };
    if (path === '/v1/load_lora_adapter') {
      const told = this.onLoad(name, at);
      if (told !== undefined && told.status !== 200) return reply(told.status, told.text);
      if (this.loaded.has(name)) return reply(400, JSON.stringify({ error: { message: `${name} is loaded already` } }));
      this.loaded.set(name, at);
      return reply(200, `Success: LoRA adapter '${name}' added successfully.`);
    }
    if (!this.loaded.delete(name)) return reply(404, JSON.stringify({ error: { message: `${name} is not loaded` } }));
    reply(200, `Success: LoRA adapter '${name}' removed successfully.`);
  }
}
