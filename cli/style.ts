/** Colours, where a terminal wants them. A style that is off returns texts as they are. */

/** What of the environment decides about colours; settings.ts reads it. */
export interface ColourSettings {
  /** NO_COLOR is set to something. */
  readonly noColour: boolean;
  /** FORCE_COLOR: asked for (true), refused (false), or not mentioned. It wins over everything else. */
  readonly forceColour: boolean | undefined;
  /** TERM is `dumb`: a terminal that understands no escape sequence. */
  readonly isDumb: boolean;
}

export const wantsColour = (
  stream: { readonly isTTY?: boolean },
  { noColour, forceColour, isDumb }: ColourSettings,
): boolean => forceColour ?? (stream.isTTY === true && !noColour && !isDumb);

/** Select Graphic Rendition codes: on, and off again. */
const CODES = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
} as const;

export type Style = Readonly<Record<keyof typeof CODES, (text: string) => string>>;

export function styleOf(isOn: boolean): Style {
  const paint = (name: keyof typeof CODES) => (text: string) =>
    isOn ? `\x1b[${CODES[name][0]}m${text}\x1b[${CODES[name][1]}m` : text;
  return {
    bold: paint('bold'),
    dim: paint('dim'),
    red: paint('red'),
    green: paint('green'),
    yellow: paint('yellow'),
    cyan: paint('cyan'),
  };
}
