/**
 * Reads protobuf messages field by field; every length is checked against its message.
 */
import { UserError } from '../errors.js';

/** A field as encoded: a number (varint, fixed32 bits, fixed64 bits as bigint) or a length-delimited slice. */
export type ProtoField =
  | { readonly number: number; readonly wire: 'varint' | 'fixed64'; readonly value: bigint }
  | { readonly number: number; readonly wire: 'fixed32'; readonly value: number }
  | { readonly number: number; readonly wire: 'bytes'; readonly value: Uint8Array };

/**
 * The fields of one message, in order. Nested messages are 'bytes' fields: pass them to this function again.
 * https://protobuf.dev/programming-guides/encoding. `where` starts every message. Throws UserError.
 */
export function* protoFields(message: Uint8Array, where: string): Generator<ProtoField, void, undefined> {
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  let at = 0;
  const fail = (what: string): never => {
    throw new UserError(`${where}: damaged protobuf: ${what} at byte ${at}`, 'download the file again');
  };
  const need = (count: number): void => {
    if (count > message.length - at) fail(`a field of ${count} bytes runs past the end`);
  };
  const varint = (): bigint => {
    let small = 0;
    // Four groups fit in a positive int32, and nearly every varint is that short.
    for (let shift = 0; shift < 28; shift += 7) {
      need(1);
      const byte = message[at++] ?? 0;
      small |= (byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt(small);
    }
    let large = BigInt(small);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      need(1);
      const byte = message[at++] ?? 0;
      large |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, large);
    }
    return fail('a number of more than 10 bytes');
  };
  while (at < message.length) {
    const tag = varint();
    const number = Number(tag >> 3n);
    if (number < 1 || number > 536_870_911) fail(`field number ${number}`);
    switch (Number(tag & 7n)) {
      case 0:
        yield { number, wire: 'varint', value: varint() };
        break;
      case 1:
        need(8);
        yield { number, wire: 'fixed64', value: view.getBigUint64(at, true) };
        at += 8;
        break;
      case 2: {
        const length = Number(varint());
        need(length);
        yield { number, wire: 'bytes', value: message.subarray(at, at + length) };
        at += length;
        break;
      }
      case 5:
        need(4);
        yield { number, wire: 'fixed32', value: view.getUint32(at, true) };
        at += 4;
        break;
      default:
        fail(`wire type ${Number(tag & 7n)}`);
    }
  }
}
