/** Numbers on the command lines of benchmarks. */
import { UserError } from '../errors.js';

export interface NumberRange {
  readonly least: number;
  readonly most: number;
  readonly isWhole: boolean;
}

/** The number that `--name text` gives. Throws UserError with `hint` if it is not one of `range`. */
export function numberOption(name: string, text: string, { least, most, isWhole }: NumberRange, hint: string): number {
  const value = Number(text);
  const isValid = text.trim() !== '' && value >= least && value <= most && (!isWhole || Number.isInteger(value));
  if (isValid) return value;
  const expected = isWhole ? 'a whole number' : 'a number';
  throw new UserError(`--${name} ${JSON.stringify(text)}: expected ${expected} from ${least} to ${most}`, hint);
}
