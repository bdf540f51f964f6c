/**
 * Formats of strings as regular languages. The letters that they consist of are never escaped. Sources: RFC 3339
 * (dates), RFC 5321 (mailboxes), RFC 1123 (host names), RFC 4291 (IPv6), RFC 4122 (UUID), RFC 3986 and 3987 (URI, IRI),
 * RFC 6570 (URI templates), RFC 6901 (JSON pointers).
 */
import type { Regular } from '../grammar.js';
import { type CharacterSet, character, characterSet, complementOf } from './characters.js';
import { EPSILON, both, choice, digits, literal, optional, repeat, sequence } from './regular.js';

const letters = (text: string, ...ranges: CharacterSet): Regular =>
  character(characterSet([...Array.from(text, (letter): [number, number] => [code(letter), code(letter)]), ...ranges]));
const code = (letter: string): number => letter.codePointAt(0) ?? 0;
const range = (first: string, last: string): readonly [number, number] => [code(first), code(last)];

const D = digits(0, 9);
const DIGIT = range('0', '9');
const HEX = letters('', DIGIT, range('a', 'f'), range('A', 'F'));
const LETTER = [range('a', 'z'), range('A', 'Z')] as const;
const text = literal;
const times = (of: Regular, count: number): Regular => repeat(of, count, count);
/** One or more, with a mark between them. */
const separated = (of: Regular, mark: string): Regular => sequence(of, repeat(sequence(text(mark), of), 0));

// Dates

const twoDigits = (first: number, last: number): Regular =>
  choice(
    ...Array.from({ length: Math.floor(last / 10) - Math.floor(first / 10) + 1 }, (_, i) => {
      const tens = Math.floor(first / 10) + i;
      return sequence(digits(tens, tens), digits(Math.max(0, first - 10 * tens), Math.min(9, last - 10 * tens)));
    }),
  );

const month = (...numbers: readonly number[]): Regular => choice(...numbers.map((number) => twoDigits(number, number)));
const YEAR = times(D, 4);
const multipleOf4 = choice(sequence(letters('02468'), letters('048')), sequence(letters('13579'), letters('26')));
const LEAP_YEAR = choice(
  both(sequence(D, D, multipleOf4), { kind: 'not', of: sequence(D, D, text('00')) }),
  sequence(multipleOf4, text('00')),
);
const dash = text('-');
const DATE = choice(
  sequence(YEAR, dash, month(1, 3, 5, 7, 8, 10, 12), dash, twoDigits(1, 31)),
  sequence(YEAR, dash, month(4, 6, 9, 11), dash, twoDigits(1, 30)),
  sequence(YEAR, dash, text('02-'), twoDigits(1, 28)),
  sequence(LEAP_YEAR, dash, text('02-29')),
);
const HOURS = twoDigits(0, 23);
const SIXTY = twoDigits(0, 59);
/** No leap seconds: whether one is there depends on the date. */
const TIME = sequence(
  HOURS,
  text(':'),
  SIXTY,
  text(':'),
  SIXTY,
  optional(sequence(text('.'), repeat(D, 1, 9))),
  choice(letters('Zz'), sequence(letters('+-'), HOURS, text(':'), SIXTY)),
);

/** ISO 8601, as RFC 3339 appendix A has it: units follow each other without gaps. */
function duration(): Regular {
  const part = (unit: string, next?: Regular): Regular =>
    sequence(repeat(D, 1), text(unit), next === undefined ? EPSILON : optional(next));
  const seconds = part('S');
  const minutes = part('M', seconds);
  const time = sequence(text('T'), choice(part('H', minutes), minutes, seconds));
  const days = part('D');
  const months = part('M', days);
  const date = sequence(choice(part('Y', months), months, days), optional(time));
  return sequence(text('P'), choice(date, time, part('W')));
}

// Hosts

const LABEL_OR_DOT = letters('-.', DIGIT, ...LETTER);
const LABEL_EDGE = letters('', DIGIT, ...LETTER);
const LABEL_INNER = letters('-', DIGIT, ...LETTER);
/** None with `--` in its third and fourth place: those are in Punycode, which no regular expression can check. */
const LABEL = choice(
  sequence(LABEL_EDGE, optional(sequence(repeat(LABEL_INNER, 0, 2), LABEL_EDGE))),
  sequence(
    sequence(LABEL_EDGE, LABEL_INNER),
    choice(sequence(LABEL_EDGE, LABEL_INNER), sequence(dash, LABEL_EDGE)),
    sequence(repeat(LABEL_INNER, 0, 58), LABEL_EDGE),
  ),
);
/** Labels of which none is longer than 63, 253 in all. */
const HOSTNAME = both(separated(LABEL, '.'), repeat(LABEL_OR_DOT, 1, 253));

const OCTET = choice(
  D,
  sequence(digits(1, 9), D),
  sequence(text('1'), D, D),
  sequence(text('2'), digits(0, 4), D),
  sequence(text('25'), digits(0, 5)),
);
const IPV4 = sequence(OCTET, ...[1, 2, 3].map(() => sequence(text('.'), OCTET)));

const H16 = repeat(HEX, 1, 4);
const LS32 = choice(sequence(H16, text(':'), H16), IPV4);
const IPV6 = choice(
  sequence(times(sequence(H16, text(':')), 6), LS32),
  ...[5, 4, 3, 2, 1, 0].map((behind, before) =>
    sequence(groupsUpTo(before), text('::'), times(sequence(H16, text(':')), behind), LS32),
  ),
  sequence(groupsUpTo(6), text('::'), H16),
  sequence(groupsUpTo(7), text('::')),
);
/** At most so many groups of an address, with colons between them. */
function groupsUpTo(count: number): Regular {
  return count === 0 ? EPSILON : optional(sequence(repeat(sequence(H16, text(':')), 0, count - 1), H16));
}

const ATEXT = letters("!#$%&'*+/=?^_`{|}~-", DIGIT, ...LETTER);
const LOCAL_PART = both(separated(repeat(ATEXT, 1), '.'), repeat(choice(ATEXT, text('.')), 1, 64));
/** No quoted local parts, and a host of at least two labels: what validators agree on. */
const EMAIL = sequence(LOCAL_PART, text('@'), both(HOSTNAME, sequence(LABEL, text('.'), repeat(LABEL_OR_DOT, 1))));

const UUID = sequence(times(HEX, 8), ...[4, 4, 4, 12].map((count) => sequence(dash, times(HEX, count))));

// URIs

const UCS: CharacterSet = [
  [0xa0, 0xd7ff],
  [0xf900, 0xfdcf],
  [0xfdf0, 0xffef],
  ...Array.from({ length: 14 }, (_, i): [number, number] => [0x10000 * (i + 1), 0x10000 * (i + 1) + 0xfffd]),
];
const PRIVATE: CharacterSet = [
  [0xe000, 0xf8ff],
  [0xf0000, 0xffffd],
  [0x100000, 0x10fffd],
];

interface Identifiers {
  readonly absolute: Regular;
  readonly reference: Regular;
}

/** URIs where `more` is empty, and IRIs where it has the further characters. */
function identifiers(more: CharacterSet, moreOfQueries: CharacterSet): Identifiers {
  const encoded = sequence(text('%'), HEX, HEX);
  const chars = (extra: string, ...sets: CharacterSet): Regular =>
    choice(letters(`-._~!$&'()*+,;=${extra}`, DIGIT, ...LETTER, ...more, ...sets), encoded);
  const pchar = chars(':@');
  const segments = repeat(sequence(text('/'), repeat(pchar, 0)), 0);
  const ipFuture = sequence(
    letters('vV'),
    repeat(HEX, 1),
    text('.'),
    repeat(letters("-._~!$&'()*+,;=:", DIGIT, ...LETTER), 1),
  );
  const host = choice(sequence(text('['), choice(IPV6, ipFuture), text(']')), repeat(chars(''), 0));
  const user = optional(sequence(repeat(chars(':'), 0), text('@')));
  const authority = sequence(user, host, optional(sequence(text(':'), repeat(D, 0))));
  const rootless = sequence(repeat(pchar, 1), segments);
  const absolutePath = sequence(text('/'), optional(rootless));
  const withAuthority = sequence(text('//'), authority, segments);
  const scheme = sequence(letters('', ...LETTER), repeat(letters('+-.', DIGIT, ...LETTER), 0));
  const query = optional(sequence(text('?'), repeat(chars(':@/?', ...moreOfQueries), 0)));
  const fragment = optional(sequence(text('#'), repeat(chars(':@/?'), 0)));
  const absolute = sequence(scheme, text(':'), choice(withAuthority, absolutePath, rootless, EPSILON), query, fragment);
  const noScheme = sequence(repeat(chars('@'), 1), segments);
  const relative = sequence(choice(withAuthority, absolutePath, noScheme, EPSILON), query, fragment);
  return { absolute, reference: choice(absolute, relative) };
}

const URI = identifiers([], []);
const IRI = identifiers(UCS, PRIVATE);

function uriTemplate(): Regular {
  const encoded = sequence(text('%'), HEX, HEX);
  const literals = choice(letters('!#$&()*+,-./:;=?@[]_~', DIGIT, ...LETTER, ...UCS, ...PRIVATE), encoded);
  const varchar = choice(letters('_', DIGIT, ...LETTER), encoded);
  const name = sequence(varchar, repeat(sequence(optional(text('.')), varchar), 0));
  const modifier = choice(sequence(text(':'), digits(1, 9), repeat(D, 0, 3)), text('*'));
  const variables = separated(sequence(name, optional(modifier)), ',');
  const expression = sequence(text('{'), optional(letters('+#./;?&=,!@|')), variables, text('}'));
  return repeat(choice(literals, expression), 0);
}

const UNESCAPED = complementOf(characterSet([range('/', '/'), range('~', '~')]));
const JSON_POINTER = repeat(
  sequence(letters('/'), repeat(choice(character(UNESCAPED), sequence(text('~'), letters('01'))), 0)),
  0,
);
const WHOLE = choice(digits(0, 0), sequence(digits(1, 9), repeat(D, 0)));

const FORMATS: ReadonlyMap<string, Regular> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', sequence(DATE, letters('Tt'), TIME)],
  ['duration', duration()],
  ['email', EMAIL],
  ['hostname', HOSTNAME],
  ['ipv4', IPV4],
  ['ipv6', IPV6],
  ['uuid', UUID],
  ['uri', URI.absolute],
  ['uri-reference', URI.reference],
  ['iri', IRI.absolute],
  ['iri-reference', IRI.reference],
  ['uri-template', uriTemplate()],
  ['json-pointer', JSON_POINTER],
  ['relative-json-pointer', sequence(WHOLE, choice(text('#'), JSON_POINTER))],
]);

/** Formats of the standard that are no regular languages, or not worth one. Names beyond the standard mean nothing. */
const REFUSED = new Set(['regex', 'idn-email', 'idn-hostname']);

/** The language of a format; undefined where it is a name that the standard does not know. */
export const formatLanguage = (name: string): Regular | 'refused' | undefined =>
  REFUSED.has(name) ? 'refused' : FORMATS.get(name);
