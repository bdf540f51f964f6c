/** Keys of quantization configurations. */
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';

/** What to do about a checkpoint whose weights cannot be read. */
export const OTHER_WEIGHTS =
  'use the 16-bit checkpoint of the model, or one that was quantized in a supported way: see docs/quantized.md';

/** Most columns of a group, and most rows or columns of a block. */
const MAX_COLUMNS = 1 << 20;

/** A value as settings are compared: text in any case is the same. */
const plainOf = (value: unknown): string => JSON.stringify(value).toLowerCase();

/** An object of settings, with the place that starts its messages. */
export class Settings {
  private readonly json: Json;
  private readonly where: string;

  constructor(json: Json, where: string) {
    this.json = json;
    this.where = where;
  }

  refuse(key: string, wanted: string): never {
    const value = this.json[key];
    const problem = value === undefined ? 'is missing' : `${quote(value)} is not supported`;
    throw new UserError(`${this.where}: ${key} ${problem}; supported: ${wanted}`, OTHER_WEIGHTS);
  }

  isGiven(key: string): boolean {
    return isGiven(this.json[key]);
  }

  /** The first of these keys, which mean the same, that is given. Throws UserError where others contradict it. */
  private first(keys: readonly string[]): string {
    const [key = keys[0]!, ...others] = keys.filter((each) => this.isGiven(each));
    const other = others.find((each) => plainOf(this.json[each]) !== plainOf(this.json[key]));
    if (other !== undefined)
      throw new UserError(
        `${this.where}: ${key} ${quote(this.json[key])} and ${other} ${quote(this.json[other])} contradict each other`,
        OTHER_WEIGHTS,
      );
    return key;
  }

  /** One of these values; `fallback` if the key is absent. */
  oneOf<T extends string | number | boolean>(keys: readonly string[], values: readonly T[], fallback?: T): T {
    const key = this.first(keys);
    if (!this.isGiven(key) && fallback !== undefined) return fallback;
    const value = this.json[key];
    const found = values.find(
      (each) =>
        each === value ||
        (typeof each === 'string' && typeof value === 'string' && each.toLowerCase() === value.toLowerCase()),
    );
    return found ?? this.refuse(key, values.map((each) => (each === '' ? 'none' : String(each))).join(', '));
  }

  /** Columns of a group; −1 for all, which null may mean too. */
  groupSize(keys: readonly string[]): number {
    const key = this.first(keys);
    const value = this.json[key] ?? -1;
    const isSize = typeof value === 'number' && Number.isInteger(value) && (value === -1 || value > 0);
    return isSize && value <= MAX_COLUMNS ? value : this.refuse(key, '-1, or a number of columns');
  }

  /** Rows and columns of a block, as a list; or as text such as `128x128`, if `isText`. */
  twoSizes(key: string, isText = false): readonly [number, number] {
    const value = this.json[key];
    const sizes = isText && typeof value === 'string' && /^\d{1,7}x\d{1,7}$/.test(value) ? value.split('x') : value;
    const [rows, columns, ...more] = Array.isArray(sizes) ? sizes.map(Number) : [];
    const isSize = (size: number | undefined): size is number =>
      size !== undefined && Number.isInteger(size) && size > 0 && size <= MAX_COLUMNS;
    return isSize(rows) && isSize(columns) && more.length === 0
      ? [rows, columns]
      : this.refuse(key, `two sizes from 1 to ${MAX_COLUMNS}`);
  }

  /** Refuses a key with a value other than nothing. */
  forbid(key: string): void {
    const value = this.json[key];
    const isEmpty =
      !isGiven(value) || value === false || (typeof value === 'object' && Object.keys(value!).length === 0);
    if (!isEmpty) this.refuse(key, 'none');
  }

  /** The object at a key; undefined if there is none. */
  record(key: string): Json | undefined {
    const value = this.json[key];
    if (!isGiven(value)) return undefined;
    return isRecord(value) ? value : this.refuse(key, 'an object');
  }
}

/** `groups of 128`, or what is said of one scale for all columns. */
export const printGroups = (size: number): string => (size === -1 ? 'a scale for each row' : `groups of ${size}`);
