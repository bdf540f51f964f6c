/** The few SVG elements that pictures of the documentation consist of. Text is escaped; numbers are pixels. */

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => ESCAPES[character] ?? character);

export interface TextStyle {
  readonly size?: number;
  readonly bold?: boolean;
  readonly colour?: string;
  readonly anchor?: 'start' | 'middle' | 'end';
}

export const INK = '#1f2937';
export const FADED = '#6b7280';

/** A line of text whose baseline is at y. */
export function label(x: number, y: number, text: string, style: TextStyle = {}): string {
  const { size = 13, bold = false, colour = INK, anchor = 'start' } = style;
  const weight = bold ? ' font-weight="600"' : '';
  return (
    `<text x="${x}" y="${y}" font-size="${size}" fill="${colour}" ` +
    `text-anchor="${anchor}"${weight}>${escaped(text)}</text>`
  );
}

/** A rounded box. */
export const box = (x: number, y: number, width: number, height: number, fill: string, stroke: string): string =>
  `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6" fill="${fill}" stroke="${stroke}"/>`;

/** A curve from the right edge of one box to the left edge of another. */
export function curve(x1: number, y1: number, x2: number, y2: number): string {
  const middle = (x1 + x2) / 2;
  return (
    `<path d="M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}" ` +
    'fill="none" stroke="#94a3b8" stroke-width="1.5"/>'
  );
}

/** A vertical arrow. */
export const arrow = (x: number, from: number, to: number): string =>
  `<path d="M${x} ${from} V${to - 2} m-4 -5 l4 6 l4 -6" fill="none" stroke="#94a3b8" stroke-width="1.5"/>`;

/** A whole picture on a light card, which is readable on pages of any colour. `title` is what a screen reader says. */
export function picture(width: number, height: number, title: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`,
    '     font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img">',
    `<title>${escaped(title)}</title>`,
    `<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="10" fill="#ffffff" stroke="#e5e7eb"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}
