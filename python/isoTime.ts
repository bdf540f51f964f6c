/** Times written as ISO 8601 says, as pyarrow recognizes them in texts: to the second, with or without a zone. */

const ISO = /^(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2})(?::(\d{2})(?::(\d{2}))?)?(?:Z|([+-])(\d{2})(?::?(\d{2}))?)?)?$/;

/** Seconds from 1970-01-01 in UTC, where a text without a zone is of UTC; undefined for another text. */
export function isoSeconds(text: string): number | undefined {
  const parts = text.length >= 10 && text.length <= 25 ? ISO.exec(text) : null;
  if (parts === null) return undefined;
  const number = (index: number): number => Number(parts[index] ?? 0);
  const [year, month, day, hour, minute, second] = [1, 2, 3, 4, 5, 6].map(number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [zoneHour, zoneMinute] = [number(8), number(9)];
  if (hour > 23 || minute > 59 || second > 59 || zoneHour > 23 || zoneMinute > 59) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  const offset = (parts[7] === '-' ? -1 : 1) * (zoneHour * 60 + zoneMinute) * 60;
  return date.getTime() / 1000 + hour * 3600 + minute * 60 + second - offset;
}
