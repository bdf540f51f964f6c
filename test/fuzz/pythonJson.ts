/** Hostile JSON as Python writes it: two readers that share no code read the same, or both refuse it. */
import { parseJsonValue } from '../../python/literal.js';
import { parsePythonJson } from '../../system/json.js';
import { mutateBytes, mutateText, pick, type Random } from './mutate.js';
import { expectRefusal } from './refusals.js';

const TEXTS = [
  '{"model_max_length": Infinity, "low": -Infinity, "scale": NaN, "name": "NaN \\" Infinity", "n": [1, -0.5e3]}',
  '{"weight_map": {"a.weight": "x", "__proto__": {"a": NaN}, "1": true}, "metadata": {"total_size": 1e30}}',
  '[NaN, -Infinity, {"a": {"b": [null, false, "\\u0000NaN", "\\\\"]}}, "-Infinity", Infinity]',
];
const PARTS = ['NaN', '-', 'Infinity', '"', '\\', '{', '}', '[', ']', ',', ':', ' ', '\n', '0', '1e5', '"__proto__"'];

type Value = ReturnType<typeof parseJsonValue>;

/** Whether both readers found the same. Whole numbers may be larger than a double holds without rounding. */
function isSame(plain: unknown, value: Value): boolean {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return plain === value;
  if (typeof value === 'number' || typeof value === 'bigint') return plain === Number(value);
  if (Array.isArray(value))
    return Array.isArray(plain) && plain.length === value.length && plain.every((each, i) => isSame(each, value[i]));
  if (value instanceof Map) {
    if (typeof plain !== 'object' || plain === null || Object.getPrototypeOf(plain) !== Object.prototype) return false;
    const entries = Object.entries(plain);
    return entries.length === value.size && entries.every(([key, each]) => isSame(each, value.get(key) as Value));
  }
  return 'value' in value && Object.is((plain as number) + 0, value.value + 0);
}

function oracle(text: string): { readonly value: Value } | undefined {
  try {
    return { value: parseJsonValue(text) };
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** What the reader finds; undefined if it refuses the text in one line. */
function read(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: parsePythonJson(text, 'config.json') };
  } catch (error) {
    expectRefusal(error);
    return undefined;
  }
}

export const pythonJson = {
  about: 'JSON files with NaN and Infinity, as Python writes them',
  rounds: 3000,
  round: (random: Random): void => {
    const whole = pick(random, TEXTS);
    const text = random() < 0.8 ? mutateText(whole, random, PARTS) : mutateBytes(Buffer.from(whole), random).toString();
    const [found, expected] = [read(text), oracle(text)];
    if ((found === undefined) !== (expected === undefined))
      throw new Error(`${found === undefined ? 'refused' : 'read'} by one reader alone: ${text}`);
    if (found !== undefined && !isSame(found.value, expected!.value)) throw new Error(`read in two ways: ${text}`);
  },
};
