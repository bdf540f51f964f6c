/** How the next token is chosen: the options of a request, and what they may be. */

/** A setting that is a number. */
interface Setting {
  readonly summary: string;
  readonly default: number;
  readonly least: number;
  readonly most: number;
  /** The least itself is not allowed. */
  readonly isAbove?: boolean;
  readonly isWhole?: boolean;
}

/** Every number that a request may set. Flags and interfaces are made from this table. */
export const SETTINGS = {
  temperature: {
    summary: 'divides the logits; 0 takes the most likely token',
    default: 0,
    least: 0,
    most: 100,
  },
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof SETTINGS;

export type SamplingOptions = { readonly [Name in SettingName]?: number } & {
  /** 64 bits. The same seed gives the same tokens, alone or beside others. Default 0. */
  readonly seed?: bigint;
};

/** Options with their defaults. */
export type Sampling = { readonly [Name in SettingName]: number } & { readonly seed: bigint };

/** Temperatures below this take the most likely token: their reciprocals would leave the range of useful logits. */
const LEAST_TEMPERATURE = 1e-5;

/** Whether the most likely token is taken. */
export const isGreedy = ({ temperature }: Sampling): boolean => temperature < LEAST_TEMPERATURE;

/** The options with defaults for those that are not given. Throws RangeError where one is out of range. */
export function resolveSampling(options: SamplingOptions): Sampling {
  const { seed = 0n } = options;
  if (seed < -(2n ** 63n) || seed >= 2n ** 64n) throw new RangeError(`seed ${seed} has more than 64 bits`);
  const numbers = Object.entries<Setting>(SETTINGS).map(([name, setting]) => {
    const value = options[name as SettingName] ?? setting.default;
    const problem = settingProblem(value, setting);
    if (problem !== undefined) throw new RangeError(`${name} ${value}: ${problem}`);
    return [name, value] as const;
  });
  return { ...(Object.fromEntries(numbers) as Record<SettingName, number>), seed };
}

/** What is wrong with a value, as `expected …`; undefined if nothing is. */
export function settingProblem(value: number, { least, most, isAbove, isWhole }: Setting): string | undefined {
  const isInside = (isAbove === true ? value > least : value >= least) && value <= most;
  if (isInside && (isWhole !== true || Number.isInteger(value))) return undefined;
  const range = isAbove === true ? `above ${least}, at most ${most}` : `${least} to ${most}`;
  return `expected ${isWhole === true ? 'a whole number, ' : ''}${range}`;
}
