/**
 * An answer of a replica on its way to a client, at the pace of the client. As long as nothing of the answer has been
 * sent, the request can still be asked of another replica; so the head of an answer waits for its first bytes, and a
 * small answer for all of them.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { EventGate } from './eventGate.js';
import { returnedHeaders } from './headers.js';
import { ModelRenamer } from './renameModel.js';

/**
 * `lost`: the replica broke off, and the client has seen nothing of an answer. `cut`: it has seen some events, and can
 * be told by another. `torn`: it has seen a part of something, and can only be told by an end of the connection.
 */
export type RelayEnd = 'answered' | 'cancelled' | 'lost' | 'cut' | 'torn';

export interface RelayOptions {
  /** The name that the answer has for the model, and the one that the client has. */
  readonly rename?: { readonly held: string; readonly plain: string };
  /** Is called when the first byte of the answer has come. */
  readonly onBegin?: () => void;
  /** Is called with the tokens of a whole answer: what its usage says, or else how many events there were. */
  readonly onTokens?: (tokens: number) => void;
}

/** An answer that is no stream, and not longer, is sent when it is whole. */
const MAX_HELD_BYTES = 256 << 10;
/** In which the usage of an answer is looked for. */
const TAIL_BYTES = 1024;

export const isEventStream = (response: IncomingMessage): boolean =>
  response.headers['content-type']?.toLowerCase().startsWith('text/event-stream') === true;

/**
 * Sends the answer on. The client's head may have been sent before, by a stream that had comments alone. Settles when
 * nothing more will be written by it; ends the client's answer only where it was whole.
 */
export function relay(
  from: IncomingMessage,
  to: ServerResponse,
  { rename, onBegin, onTokens }: RelayOptions,
): Promise<RelayEnd> {
  return new Promise((resolve) => {
    const isStream = isEventStream(from);
    const gate = isStream ? new EventGate() : undefined;
    const renamer = rename === undefined ? undefined : new ModelRenamer(rename.held, rename.plain);
    const isUnchanged = renamer === undefined && !isStream;
    let held: Buffer[] = [];
    let heldBytes = 0;
    let tail: Buffer = Buffer.alloc(0);
    let [hasBegun, isOver] = [false, false];

    const head = (): void => {
      if (!to.headersSent) to.writeHead(from.statusCode ?? 502, returnedHeaders(from.headers, isUnchanged));
    };
    const begin = (): void => {
      if (hasBegun) return;
      hasBegun = true;
      onBegin?.();
    };
    const write = (bytes: Buffer): void => {
      if (bytes.length === 0) return;
      head();
      if (!to.write(bytes)) {
        from.pause();
        to.once('drain', () => from.resume());
      }
    };
    const finish = (end: RelayEnd): void => {
      if (isOver) return;
      isOver = true;
      to.off('close', onGone);
      from.off('data', onData).off('end', onEnd).off('close', onCut).resume();
      resolve(end);
    };

    const onData = (chunk: Buffer): void => {
      tail =
        chunk.length >= TAIL_BYTES ? chunk.subarray(-TAIL_BYTES) : Buffer.concat([tail, chunk]).subarray(-TAIL_BYTES);
      if (gate !== undefined) {
        const { bytes, hasEvent } = gate.push(chunk);
        if (hasEvent) begin();
        write(renamer === undefined ? bytes : renamer.push(bytes));
        return;
      }
      if (hasBegun) return write(renamer === undefined ? chunk : renamer.push(chunk));
      held.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes <= MAX_HELD_BYTES) return;
      begin();
      for (const part of held) write(renamer === undefined ? part : renamer.push(part));
      held = [];
    };
    const onEnd = (): void => {
      if (!from.complete) return onCut();
      const rest = gate === undefined ? held : [gate.end()];
      begin();
      const last = Buffer.concat(
        renamer === undefined ? rest : [...rest.map((part) => renamer.push(part)), renamer.end()],
      );
      head();
      to.end(last);
      const usage = /.*"completion_tokens": ?(\d{1,9})/s.exec(tail.toString('latin1'))?.[1];
      if (usage !== undefined || gate !== undefined) onTokens?.(usage === undefined ? gate!.count : Number(usage));
      finish('answered');
    };
    const onCut = (): void => {
      if (from.complete && from.readableEnded) return;
      finish(hasBegun ? (gate?.isBroken === false ? 'cut' : 'torn') : 'lost');
    };
    const onGone = (): void => {
      if (to.writableFinished) return;
      from.destroy();
      finish('cancelled');
    };
    to.on('close', onGone);
    from.on('data', onData).on('end', onEnd).on('close', onCut);
    if (to.destroyed) onGone();
    else if (from.destroyed && !from.complete) onCut();
  });
}
