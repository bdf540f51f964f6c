/**
 * Reads the pickles of torch.save: dictionaries of tensors, and nothing that could run code
 * (https://docs.python.org/3/library/pickletools.html names the opcodes). A pickle is a program for a stack machine;
 * this machine knows the opcodes that build data, and calls only functions on its list. The bytes are hostile.
 */
import { at } from '../../system/at.js';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';

/** A stretch of numbers in an entry of the archive, as a persistent id names it. */
export interface Storage {
  readonly kind: 'storage';
  /** torch's name, such as HalfStorage. */
  readonly type: string;
  /** Name of the entry below data/. */
  readonly key: string;
  /** Number of elements. */
  readonly count: number;
}

/** A view of a storage. Offset and strides count elements. */
export interface PickledTensor {
  readonly kind: 'tensor';
  readonly storage: Storage;
  readonly offset: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

interface Global {
  readonly kind: 'global';
  readonly name: string;
}
interface Tuple {
  readonly kind: 'tuple';
  readonly items: readonly PickleValue[];
}
interface PickledList {
  readonly kind: 'list';
  readonly items: PickleValue[];
}
export interface PickledDictionary {
  readonly kind: 'dict';
  readonly entries: Map<PickleValue, PickleValue>;
}
export type PickleValue =
  | string
  | number
  | boolean
  | null
  | Storage
  | PickledTensor
  | Global
  | Tuple
  | PickledList
  | PickledDictionary;

/**
 * Bounds on what a pickle may do, make and remember. A tensor takes some 45 operations, 12 texts and containers, and 10
 * of them are remembered: enough for a file of MAX_TENSORS tensors, little enough for a file of nothing else.
 */
const MAX_OPERATIONS = 1 << 22;
const MAX_MADE = 1 << 19;
const MAX_DEPTH = 1 << 20;
const MAX_DIMENSIONS = 16;

const STORAGE = /^torch (\w{1,40}Storage)$/;
const DICTIONARIES = ['collections OrderedDict', 'builtins dict', '__builtin__ dict'];
const TENSOR = 'torch._utils _rebuild_tensor_v2';
const PARAMETER = 'torch._utils _rebuild_parameter';
const isAllowed = (name: string): boolean =>
  STORAGE.test(name) || DICTIONARIES.includes(name) || name === TENSOR || name === PARAMETER;

const REWRITE =
  'use the safetensors copy of the model, or save the state_dict alone: torch.save(model.state_dict(), FILE)';

const isKind = <K extends Exclude<PickleValue, string | number | boolean | null>['kind']>(
  value: PickleValue | undefined,
  kind: K,
): value is Extract<PickleValue, { readonly kind: K }> =>
  typeof value === 'object' && value !== null && value.kind === kind;

/** Reads the value that the pickle describes. Throws UserError, one line that starts with `where`. */
export function unpickle(bytes: Buffer, where: string): PickleValue {
  return new Unpickler(bytes, where).run();
}

class Unpickler {
  private at = 0;
  /** Texts and containers so far. */
  private made = 0;
  private readonly stack: PickleValue[] = [];
  private readonly memo = new Map<number, PickleValue>();
  /** Heights of the stack at which lists were opened, each above the one before. */
  private readonly marks: number[] = [];

  private readonly bytes: Buffer;
  private readonly where: string;

  constructor(bytes: Buffer, where: string) {
    this.bytes = bytes;
    this.where = where;
  }

  run(): PickleValue {
    for (let operations = 0; operations < MAX_OPERATIONS; operations++) {
      const place = this.at;
      const opcode = this.byte();
      if (opcode === 0x2e) return this.pop(); // STOP
      const operation = OPERATIONS.get(opcode);
      if (operation === undefined)
        this.refuse(`opcode 0x${opcode.toString(16)} at byte ${place} is not one that builds tensors`);
      operation(this);
      if (this.stack.length > MAX_DEPTH) this.refuse(`more than ${MAX_DEPTH} values at once`);
    }
    return this.refuse(`more than ${MAX_OPERATIONS} operations`);
  }

  refuse(problem: string): never {
    throw new UserError(`${this.where}: ${problem}`, REWRITE);
  }

  take(count: number): Buffer {
    if (this.at + count > this.bytes.length) this.refuse(`truncated at byte ${this.bytes.length}`);
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }

  byte(): number {
    return this.take(1).readUInt8();
  }

  /** Text up to a line feed, as old opcodes have it. */
  line(): string {
    const end = this.bytes.indexOf(0x0a, this.at);
    if (end < 0) this.refuse('a name does not end');
    return this.take(end + 1 - this.at)
      .subarray(0, -1)
      .toString();
  }

  push(value: PickleValue): void {
    this.stack.push(value);
  }

  /** Pushes a value that takes memory of its own. */
  make(value: PickleValue): void {
    if (++this.made > MAX_MADE) this.refuse(`more than ${MAX_MADE} texts, tuples, lists and dictionaries`);
    this.push(value);
  }

  pop(): PickleValue {
    if (this.stack.length === (this.marks.at(-1) ?? 0)) this.refuse('it takes a value that is not there');
    return this.stack.pop()!;
  }

  openList(): void {
    this.marks.push(this.stack.length);
    if (this.marks.length > MAX_DEPTH) this.refuse(`more than ${MAX_DEPTH} open lists`);
  }

  /** The values since a list was opened last. */
  closeList(): PickleValue[] {
    const start = this.marks.pop() ?? this.refuse('it closes a list that was not opened');
    return this.stack.splice(start);
  }

  remember(index: number): void {
    if (this.memo.size > MAX_MADE) this.refuse(`it remembers more than ${MAX_MADE} values`);
    this.memo.set(index, this.stack.at(-1) ?? this.refuse('it remembers a value of an empty stack'));
  }

  rememberNext(): void {
    this.remember(this.memo.size);
  }

  recall(index: number): void {
    const value = this.memo.get(index);
    this.push(value === undefined ? this.refuse(`it recalls value ${index}, which it did not remember`) : value);
  }

  global(module: PickleValue, attribute: PickleValue): void {
    const name = typeof module === 'string' && typeof attribute === 'string' ? `${module} ${attribute}` : '';
    if (!isAllowed(name)) this.refuse(`it asks for ${quote(name.replace(' ', '.'))}, which is not on the list`);
    this.make({ kind: 'global', name });
  }

  setItems(items: readonly PickleValue[]): void {
    const target = this.stack.at(-1);
    if (!isKind(target, 'dict') || items.length % 2 !== 0) this.refuse('it sets items of what is no dictionary');
    for (let i = 0; i < items.length; i += 2) target.entries.set(at(items, i), at(items, i + 1));
  }

  append(items: readonly PickleValue[]): void {
    const target = this.stack.at(-1);
    if (!isKind(target, 'list')) this.refuse('it appends to what is no list');
    for (const item of items) target.items.push(item);
  }

  /** ('storage', type, key, location, count) */
  persistent(id: PickleValue): void {
    const [tag, type, key, , count] = isKind(id, 'tuple') ? id.items : [];
    const name = isKind(type, 'global') ? STORAGE.exec(type.name)?.[1] : undefined;
    if (tag !== 'storage' || name === undefined || typeof key !== 'string' || !isCount(count))
      this.refuse('a storage is not described as torch.save does it');
    this.make({ kind: 'storage', type: name, key, count });
  }

  reduce(): void {
    const args = this.pop();
    const callee = this.pop();
    if (!isKind(args, 'tuple') || !isKind(callee, 'global')) this.refuse('it calls what is no function');
    const { items } = args;
    if (DICTIONARIES.includes(callee.name)) {
      if (items.length > 0) this.refuse('a dictionary is made from other values');
      this.make({ kind: 'dict', entries: new Map() });
    } else if (callee.name === TENSOR) this.make(this.tensor(items));
    else if (callee.name === PARAMETER && isKind(items[0], 'tensor')) this.push(items[0]);
    else this.refuse(`it calls ${quote(callee.name.replace(' ', '.'))} with other values than torch.save does`);
  }

  tensor([storage, offset, shape, strides]: readonly PickleValue[]): PickledTensor {
    const sizes = (value: PickleValue | undefined): readonly number[] => {
      const items = isKind(value, 'tuple') ? value.items : [];
      return isKind(value, 'tuple') && items.length <= MAX_DIMENSIONS && items.every(isCount)
        ? items
        : this.refuse('the sizes of a tensor are not whole numbers');
    };
    if (!isKind(storage, 'storage')) return this.refuse('a tensor has no storage');
    // A list may hold itself, or one list a million times: it is not shown.
    if (typeof offset === 'object') return this.refuse('the place of a tensor in its storage is no number');
    if (!isCount(offset))
      return this.refuse(`a tensor starts at element ${quote(offset, 40)} of its storage ${quote(storage.key, 40)}`);
    return { kind: 'tensor', storage, offset, shape: sizes(shape), strides: sizes(strides) };
  }

  /** A little-endian number of `count` bytes in two's complement. */
  long(count: number): void {
    if (count > 8) this.refuse(`a number of ${count} bytes`);
    const bytes = this.take(count);
    const value =
      count === 0 ? 0 : Number(BigInt.asIntN(8 * count, BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`)));
    this.push(Number.isSafeInteger(value) ? value : this.refuse('a number of more than 53 bits'));
  }

  text(count: number, encoding: 'utf8' | 'latin1' = 'utf8'): void {
    this.make(this.take(count).toString(encoding));
  }
}

const isCount = (value: PickleValue | undefined): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

const tuple = (machine: Unpickler, count: number): void => {
  const items = Array.from({ length: count }, () => machine.pop()).reverse();
  machine.make({ kind: 'tuple', items });
};

/** What torch.save's pickles of protocols 2 to 5 are made of, by opcode. */
const OPERATIONS: ReadonlyMap<number, (machine: Unpickler) => void> = new Map([
  [0x80, (m) => void m.take(1)], // PROTO
  [0x95, (m) => void m.take(8)], // FRAME
  [0x28, (m) => m.openList()], // MARK
  [0x30, (m) => void m.pop()], // POP
  [0x4e, (m) => m.push(null)], // NONE
  [0x88, (m) => m.push(true)], // NEWTRUE
  [0x89, (m) => m.push(false)], // NEWFALSE
  [0x4a, (m) => m.push(m.take(4).readInt32LE(0))], // BININT
  [0x4b, (m) => m.push(m.byte())], // BININT1
  [0x4d, (m) => m.push(m.take(2).readUInt16LE(0))], // BININT2
  [0x8a, (m) => m.long(m.byte())], // LONG1
  [0x47, (m) => m.push(m.take(8).readDoubleBE(0))], // BINFLOAT
  [0x58, (m) => m.text(m.take(4).readUInt32LE(0))], // BINUNICODE
  [0x8c, (m) => m.text(m.byte())], // SHORT_BINUNICODE
  [0x55, (m) => m.text(m.byte(), 'latin1')], // SHORT_BINSTRING
  [0x29, (m) => tuple(m, 0)], // EMPTY_TUPLE
  [0x85, (m) => tuple(m, 1)], // TUPLE1
  [0x86, (m) => tuple(m, 2)], // TUPLE2
  [0x87, (m) => tuple(m, 3)], // TUPLE3
  [0x74, (m) => m.make({ kind: 'tuple', items: m.closeList() })], // TUPLE
  [0x5d, (m) => m.make({ kind: 'list', items: [] })], // EMPTY_LIST
  [0x61, (m) => m.append([m.pop()])], // APPEND
  [0x65, (m) => m.append(m.closeList())], // APPENDS
  [0x7d, (m) => m.make({ kind: 'dict', entries: new Map() })], // EMPTY_DICT
  [0x73, (m) => m.setItems([m.pop(), m.pop()].reverse())], // SETITEM
  [0x75, (m) => m.setItems(m.closeList())], // SETITEMS
  [0x71, (m) => m.remember(m.byte())], // BINPUT
  [0x72, (m) => m.remember(m.take(4).readUInt32LE(0))], // LONG_BINPUT
  [0x94, (m) => m.rememberNext()], // MEMOIZE
  [0x68, (m) => m.recall(m.byte())], // BINGET
  [0x6a, (m) => m.recall(m.take(4).readUInt32LE(0))], // LONG_BINGET
  [0x63, (m) => m.global(m.line(), m.line())], // GLOBAL
  [
    0x93,
    (m) => {
      const attribute = m.pop();
      m.global(m.pop(), attribute);
    },
  ], // STACK_GLOBAL
  [0x51, (m) => m.persistent(m.pop())], // BINPERSID
  [0x52, (m) => m.reduce()], // REDUCE
  [0x62, (m) => void m.pop()], // BUILD: attributes of a dictionary, such as _metadata, which nothing here reads
]);
