/** Keys of quantisation configurations. */
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';

/** What to do about a checkpoint whose weights cannot be read. */
export const OTHER_WEIGHTS =
  'use the 16-bit checkpoint of the model, or one that was quantised in a supported way: see docs/quantised.md';

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

  /** The first of these keys that is given. */
  private first(keys: readonly string[]): string {
    return keys.find((key) => this.isGiven(key)) ?? keys[0]!;
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
    return isSize && value <= 1 << 20 ? value : this.refuse(key, '-1, or a number of columns');
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

  value(key: string): unknown {
    return this.json[key];
  }
}

/** `groups of 128`, or what is said of one scale for all columns. */
export const printGroups = (size: number): string => (size === -1 ? 'a scale for each row' : `groups of ${size}`);
