/** What a router tells of itself while it runs: lines for people, or JSON for programs. */

/** `value` of each field is JSON. Nothing of prompts, answers and keys is in any. */
export type RouterEvent =
  | { readonly event: 'replica'; readonly replica: string; readonly state: ReplicaPhase; readonly why: string }
  | { readonly event: 'load' | 'unload'; readonly replica: string; readonly adapter: string; readonly why: string }
  | { readonly event: 'load failed' | 'unload failed'; replica: string; adapter: string; why: string }
  | { readonly event: 'revision'; readonly adapter: string; readonly revision: string; readonly why: string }
  | { readonly event: 'swap'; readonly adapter: string; readonly from: string; readonly to: string }
  | { readonly event: 'retry'; readonly id: string; readonly replica: string; readonly why: string }
  | {
      readonly event: 'request';
      readonly id: string;
      readonly path: string;
      readonly model: string | undefined;
      readonly replica: string | undefined;
      readonly status: number;
      readonly attempts: number;
      readonly outcome: string;
      readonly milliseconds: number;
    }
  | { readonly event: 'error'; readonly why: string };

/**
 * `unknown`: not asked yet. `loading` and `draining`: it answers, and takes no requests. `down`: it does not answer, or
 * says that its engine does not come on.
 */
export type ReplicaPhase = 'unknown' | 'ready' | 'loading' | 'draining' | 'down';

export type Tell = (event: RouterEvent) => void;

/** For people. Requests are left to metrics and to programs. */
export function lineOf(event: RouterEvent): string | undefined {
  switch (event.event) {
    case 'replica':
      return `replica ${event.replica}: ${event.state}${event.why === '' ? '' : `: ${event.why}`}`;
    case 'load':
    case 'unload':
    case 'load failed':
    case 'unload failed':
      return `${event.event}: ${event.adapter} at ${event.replica}${event.why === '' ? '' : `: ${event.why}`}`;
    case 'revision':
      return `revision ${event.revision} of ${event.adapter}${event.why === '' ? '' : `: ${event.why}`}`;
    case 'swap':
      return `swap: ${event.adapter} means ${event.to} from now on, and ${event.from} no more`;
    case 'retry':
      return `retry: request ${event.id} goes elsewhere than ${event.replica}: ${event.why}`;
    case 'error':
      return `error: ${event.why}`;
    case 'request':
      return undefined;
    default:
      return event satisfies never;
  }
}
