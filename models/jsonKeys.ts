/**
 * JSON.parse silently keeps the last of two equal keys. A file with contradictory entries for one tensor must be
 * refused.
 */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * The first key that occurs twice in one object of `text`, compared after unescaping; undefined if there is none.
 * `text` must already have been accepted by JSON.parse. One pass, memory proportional to the number of keys.
 */
export function findDuplicateKey(text: string): string | undefined {
  /** Keys seen in each open object; undefined for an open array. */
  const open: (Set<string> | undefined)[] = [];
  let expectsKey = false;
  for (let i = 0; i < text.length; i++) {
    switch (text[i]) {
      case '{':
        open.push(new Set());
        expectsKey = true;
        break;
      case '[':
        open.push(undefined);
        expectsKey = false;
        break;
      case '}':
      case ']':
        open.pop();
        expectsKey = false;
        break;
      case ',':
        expectsKey = open.at(-1) !== undefined;
        break;
      case '"': {
        const start = i;
        let escaped = false;
        for (i++; text.charCodeAt(i) !== QUOTE; i++) {
          if (i >= text.length) return undefined; // Not valid JSON. The parser reports it.
          if (text.charCodeAt(i) === BACKSLASH) {
            escaped = true;
            i++;
          }
        }
        const keys = open.at(-1);
        if (expectsKey && keys !== undefined) {
          const key = escaped ? (JSON.parse(text.slice(start, i + 1)) as string) : text.slice(start + 1, i);
          if (keys.has(key)) return key;
          keys.add(key);
        }
        expectsKey = false;
        break;
      }
      default:
        break;
    }
  }
  return undefined;
}
