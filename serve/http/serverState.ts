/** What the server is about, for probes and for what it takes. */
import type { Route } from '../exchange.js';

/** `dead`: the engine has ended, or does not come on. */
export type Phase = 'loading' | 'ready' | 'draining' | 'dead';

export interface ServerState {
  readonly phase: Phase;
  /** Requests that are being answered, those to open endpoints left out. */
  readonly active: number;
  readonly version: string;
}

/** Endpoints about the server itself, which are answered in every phase. */
export function stateRoutes(state: () => ServerState): readonly Route[] {
  const health: Route['handle'] = (exchange) => {
    const { phase } = state();
    if (phase !== 'ready') exchange.setHeader('retry-after', '5');
    exchange.replyText(phase === 'ready' ? 200 : 503, phase === 'ready' ? '' : phase, 'text/plain; charset=utf-8');
  };
  return [
    { method: 'GET', path: '/health', isOpen: true, handle: health },
    { method: 'GET', path: '/ping', isOpen: true, handle: health },
    { method: 'POST', path: '/ping', isOpen: true, handle: health },
    {
      method: 'GET',
      path: '/version',
      isOpen: true,
      handle: (exchange) => exchange.reply(200, { version: state().version }),
    },
    {
      method: 'GET',
      path: '/load',
      isOpen: true,
      handle: (exchange) => exchange.reply(200, { server_load: state().active }),
    },
  ];
}
