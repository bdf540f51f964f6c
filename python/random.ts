/**
 * CPython's random.Random, bit for bit. The public harness draws few-shot examples with it, so every score with random
 * shots depends on these sequences.
 */

const STATE = 624;
const SHIFT = 397;
const UPPER = 0x80000000;
const LOWER = 0x7fffffff;
const MATRIX = 0x9908b0df;

/** The 32-bit words of |seed|, the lowest first; one word for 0. */
function seedWords(seed: bigint): number[] {
  const words: number[] = [];
  for (let rest = seed < 0n ? -seed : seed; rest > 0n; rest >>= 32n) words.push(Number(rest & 0xffffffffn));
  return words.length === 0 ? [0] : words;
}

/** State of MT19937 after init_by_array. */
function initialState(key: readonly number[]): Uint32Array {
  const state = new Uint32Array(STATE);
  state[0] = 19650218;
  const mixed = (i: number): number => state[i - 1]! ^ (state[i - 1]! >>> 30);
  for (let i = 1; i < STATE; i++) state[i] = Math.imul(1812433253, mixed(i)) + i;
  let i = 1,
    j = 0;
  const advance = (): void => {
    if (++i < STATE) return;
    state[0] = state[STATE - 1]!;
    i = 1;
  };
  for (let k = Math.max(STATE, key.length); k > 0; k--) {
    state[i] = (state[i]! ^ Math.imul(mixed(i), 1664525)) + key[j]! + j;
    j = (j + 1) % key.length;
    advance();
  }
  for (let k = STATE - 1; k > 0; k--) {
    state[i] = (state[i]! ^ Math.imul(mixed(i), 1566083941)) - i;
    advance();
  }
  state[0] = UPPER;
  return state;
}

export class PythonRandom {
  readonly #state: Uint32Array;
  #next = STATE;

  /** A seed that is a whole number, of any size. Python ignores its sign. */
  constructor(seed: number | bigint) {
    this.#state = initialState(seedWords(BigInt(seed)));
  }

  #refill(): void {
    const state = this.#state;
    for (let i = 0; i < STATE; i++) {
      const bits = (state[i]! & UPPER) | (state[(i + 1) % STATE]! & LOWER);
      state[i] = state[(i + SHIFT) % STATE]! ^ (bits >>> 1) ^ ((bits & 1) === 0 ? 0 : MATRIX);
    }
    this.#next = 0;
  }

  /** 32 random bits as an unsigned number. */
  #word(): number {
    if (this.#next >= STATE) this.#refill();
    let bits = this.#state[this.#next++]!;
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  }

  /** random(): a float in [0, 1) with 53 random bits. */
  random(): number {
    const high = this.#word() >>> 5,
      low = this.#word() >>> 6;
    return (high * 2 ** 26 + low) / 2 ** 53;
  }

  /** A whole number from 0 up to, not including, `limit`, which is from 1 to 2^32 − 1. */
  below(limit: number): number {
    if (!Number.isInteger(limit) || limit < 1 || limit >= 2 ** 32) throw new RangeError(`no number below ${limit}`);
    const unused = Math.clz32(limit);
    for (;;) {
      const drawn = this.#word() >>> unused;
      if (drawn < limit) return drawn;
    }
  }

  /** sample(items, count): `count` different places of `items`. Throws RangeError if there are fewer. */
  sample<T>(items: readonly T[], count: number): T[] {
    if (!Number.isInteger(count) || count < 0 || count > items.length)
      throw new RangeError(`cannot draw ${count} of ${items.length} items`);
    // CPython copies a small pool and keeps a set of places of a large one; both are part of the sequence.
    const poolLimit = 21 + (count > 5 ? 4 ** Math.ceil(Math.log(count * 3) / Math.log(4)) : 0);
    if (items.length <= poolLimit) {
      const pool = [...items];
      return Array.from({ length: count }, (_, i) => {
        const place = this.below(items.length - i);
        const drawn = pool[place]!;
        pool[place] = pool[items.length - i - 1]!;
        return drawn;
      });
    }
    const taken = new Set<number>();
    return Array.from({ length: count }, () => {
      let place = this.below(items.length);
      while (taken.has(place)) place = this.below(items.length);
      taken.add(place);
      return items[place]!;
    });
  }

  /** shuffle(items), in place. */
  shuffle(items: unknown[]): void {
    for (let i = items.length - 1; i > 0; i--) {
      const place = this.below(i + 1);
      [items[i], items[place]] = [items[place], items[i]];
    }
  }

  /** choices(items, k=count): with replacement. `items` is not empty. */
  choices<T>(items: readonly T[], count: number): T[] {
    if (items.length === 0) throw new RangeError('cannot choose from no items');
    return Array.from({ length: count }, () => items[Math.floor(this.random() * items.length)]!);
  }
}
