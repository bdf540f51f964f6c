/** Settings of config.json with more than one spelling: activations, parts of heads that are turned, factors. */
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';
import type { RotaryOrder } from '../../ir/rotaryOrder.js';
import { ACTIVATIONS, type Activation } from './activation.js';

/** The activation under `key`, or `fallback`. Throws UserError. */
export function readActivation(json: Json, where: string, fallback: Activation, key = 'hidden_act'): Activation {
  const name = json[key];
  if (!isGiven(name)) return fallback;
  const known = typeof name === 'string' && Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
  if (known !== undefined) return known;
  throw new UserError(
    `${where}: ${key} is ${quote(name)}: supported activations are ${Object.keys(ACTIVATIONS).join(', ')}`,
  );
}

/** Keys of the part of each head that is turned: of old files of GPT-NeoX, of others, and of transformers 5. */
const PART = 'partial_rotary_factor';
const PLACES = ['rotary_pct', PART, 'rope_parameters', 'rope_scaling'] as const;

/** The parts that a file states, with the places where it does. As in transformers, rope_parameters goes first. */
function statedParts(json: Json, where: string): readonly { readonly place: string; readonly part: unknown }[] {
  const own = json['rope_parameters'];
  const isDecided = isRecord(own) && isGiven(own[PART]);
  return PLACES.filter((key) => key !== PART || !isDecided).flatMap((key) => {
    const value = json[key];
    const [place, part] = isRecord(value) ? [`${where}: ${key}.${PART}`, value[PART]] : [`${where}: ${key}`, value];
    return isGiven(part) && (isRecord(value) || !key.startsWith('rope_')) ? [{ place, part }] : [];
  });
}

/**
 * How many elements of heads of `headDim` are turned. `fallback`: the part that a family turns if its file names none;
 * undefined if it has no such setting. Throws UserError.
 */
export function readRotated(json: Json, where: string, headDim: number, fallback: number | undefined): number {
  const stated = statedParts(json, where);
  for (const { place, part } of stated) {
    if (fallback === undefined && part !== 1)
      throw new UserError(`${place} is ${quote(part)}: this family turns whole heads`);
    if (typeof part !== 'number' || !(part > 0 && part <= 1))
      throw new UserError(`${place}: expected a number above 0, at most 1, got ${quote(part)}`);
    if (part !== stated[0]!.part)
      throw new UserError(`${place} is ${quote(part)}, but ${stated[0]!.place} is ${quote(stated[0]!.part)}`);
  }
  const part = Number(stated[0]?.part ?? fallback ?? 1);
  const rotated = Math.trunc(headDim * part);
  if (rotated >= 2 && rotated % 2 === 0) return rotated;
  throw new UserError(
    `${where}: rotary embedding of ${part} of heads of ${headDim} turns ${rotated} elements; it turns pairs`,
  );
}

/** What differs from turning whole heads whose pairs are half a head apart; nothing if that is done. */
export const rotaryOf = (
  headDim: number,
  rotated: number,
  interleaved: boolean,
): { readonly rotary?: Omit<RotaryOrder, 'headDim'> } =>
  rotated === headDim && !interleaved ? {} : { rotary: { rotated, interleaved } };

/** The number `key` from `least` to `most`, or `fallback` if it is absent. Throws UserError. */
export function readNumber<F extends number | undefined>(
  json: Json,
  where: string,
  key: string,
  fallback: F,
  [least, most]: readonly [number, number] = [1e-6, 1e6],
): number | F {
  const value = json[key];
  if (!isGiven(value)) return fallback;
  if (typeof value === 'number' && value >= least && value <= most) return value;
  throw new UserError(`${where}: ${key}: expected a number from ${least} to ${most}, got ${quote(value)}`);
}
