/** Numbers and tables for people. */

/** `1,757,173` */
export const count = (value: number): string => Math.round(value).toLocaleString('en-US');

const BYTES = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

/** `14.3 MiB` */
export function bytes(value: number): string {
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < BYTES.length - 1) {
    scaled /= 1024;
    unit++;
  }
  return unit === 0 ? `${scaled} bytes` : `${scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0)} ${BYTES[unit]!}`;
}

const POWERS = ['', 'k', 'M', 'G', 'T', 'P'] as const;

/** `13.4 GFLOP`: powers of a thousand, three digits. */
export function si(value: number, unit: string): string {
  let power = 0;
  let scaled = value;
  while (scaled >= 999.5 && power < POWERS.length - 1) {
    scaled /= 1000;
    power++;
  }
  const digits = power === 0 && Number.isInteger(scaled) ? 0 : scaled < 10 ? 2 : scaled < 100 ? 1 : 0;
  return `${scaled.toFixed(digits)} ${POWERS[power]!}${unit}`;
}

const two = (value: number): string => String(value).padStart(2, '0');

/** Time left or passed: `0:41`, `12:05`, `1:02:03`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** How long something took: `0.34 s`, `12.5 s`, `3:20 min`. */
export const duration = (seconds: number): string =>
  seconds < 100 ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s` : `${clock(seconds)}${seconds < 3600 ? ' min' : ' h'}`;

export const percent = (share: number, digits = 1): string => `${(100 * share).toFixed(digits)} %`;

/** Columns padded to their widest cell, two spaces between; the last is not padded. `right`: columns aligned right. */
export function textTable(rows: readonly (readonly string[])[], right: ReadonlySet<number> = new Set()): string[] {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, i) => Math.max(0, ...rows.map((row) => row[i]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, i) =>
        right.has(i) ? cell.padStart(widths[i]!) : i === row.length - 1 ? cell : cell.padEnd(widths[i]!),
      )
      .join('  ')
      .trimEnd(),
  );
}

/** At most `width` characters; a cut is marked. */
export const cut = (text: string, width: number): string =>
  text.length <= width ? text : width < 2 ? text.slice(0, Math.max(0, width)) : `${text.slice(0, width - 1)}…`;
