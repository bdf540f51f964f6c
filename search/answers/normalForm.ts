/**
 * Answers in the normal form that search-and-learn has from an evaluation of mathematics: units, words and looks are
 * removed, fractions written in one way. It goes wrong where it does there: variables are taken for units.
 */
import { codePointLength, strip } from '../../python/value.js';
import { digitsOfWords } from './numberWords.js';

/** In the order in which they are removed; a point stands for any letter. Then all of them once more with an s. */
const UNITS =
  'east,degree,mph,kmph,ft,m sqaure, m east,sq m,deg,mile,q .,monkey,prime,ratio,profit of rs,rd,o,gm,p . m,lb,tile,' +
  'per,dm,lt,gain,ab,way,west,a .,b .,c .,d .,e .,f .,g .,h .,t,a,h,no change,men,soldier,pie,bc,excess,st,inches,' +
  'noon,percent,by,gal,kmh,c,acre,rise,a . m,th,π r 2,sq,mark,l,toy,coin,sq . m,gallon,° f,profit,minw,yr,women,' +
  'feet,am,pm,hr,cu cm,square,v â € ™,are,rupee,rounds,cubic,cc,mtr,s,ohm,number,kmph,day,hour,minute,min,second,' +
  'man,woman,sec,cube,mt,sq inch,mp,∏ cm ³,hectare,more,sec,unit,cu . m,cm 2,rs .,rs,kg,g,month,km,m,cm,mm,apple,' +
  'liter,loss,yard,pure,year,increase,decrease,d,less,Surface,litre,pi sq m,s .,metre,meter,inch';

/** Neither letter, digit nor _. */
const APART = '[^\\p{L}\\p{N}_]';
interface Unit {
  /** Stands in each text with the unit. */
  readonly part: string;
  readonly pattern: RegExp;
}
const UNIT_PATTERNS: readonly Unit[] = ['', 's']
  .flatMap((plural) => UNITS.split(',').map((unit) => unit + plural))
  .map((unit) => ({
    part: unit.split('.', 1)[0]!,
    pattern: new RegExp(`(^|${APART})${unit.replaceAll('.', '[^\\n]')}($|${APART})`, 'gu'),
  }));

/** Letters of an answer. A longer one stays as it is: none is near, and time is bounded. */
const MAX_LETTERS = 4000;

function withoutUnits(text: string): string {
  let left = text;
  for (let pass = 0; pass < 2; pass++)
    for (const { part, pattern } of UNIT_PATTERNS)
      if (left.includes(part)) left = left.replace(pattern, '$1$2') || left;
  return left;
}

type Replacement = readonly [what: string | RegExp, by: string];
function replaced(text: string, replacements: readonly Replacement[]): string {
  let left = text;
  for (const [what, by] of replacements) left = left.replaceAll(what, () => by);
  return left;
}

const LOOKS: readonly Replacement[] = [
  ['\\!', ''],
  [/\\begin\{array\}\{[^\n]*?\}/g, '\\begin{pmatrix}'],
  [/\\end\{array\}/g, '\\end{pmatrix}'],
  ['bmatrix', 'pmatrix'],
  ['tfrac', 'frac'],
  ['dfrac', 'frac'],
  ['\\neq', '\\ne'],
  ['\\leq', '\\le'],
  ['\\geq', '\\ge'],
  ['\\left', ''],
  ['\\right', ''],
  ['\\{', '{'],
  ['\\}', '}'],
];
const MARKS: readonly Replacement[] = [
  ['^{\\circ}', ''],
  ['^\\circ', ''],
  ['\\$', ''],
  ['$', ''],
  ['\\(', ''],
  ['\\)', ''],
];
const NAMES: readonly Replacement[] = [
  ...['=', '\\in', '\\to'].flatMap((sign) => ['x', 'y', 'z'].map((name): Replacement => [`${name}${sign}`, ''])),
  ['\\emptyset', '{}'],
  ['(-\\infty,\\infty)', '\\mathbb{R}'],
  ['\\%', ''],
  ['%', ''],
  [' .', ' 0.'],
  ['{.', '{0.'],
  ['infinity', '\\infty'],
];
const WORDS: readonly Replacement[] = [
  ['+\\inity', '\\infty'],
  ['and', ''],
  ['\\mathbf', ''],
  [/\\mbox\{[^\n]*?\}/g, ''],
];

/** Arguments of \frac that are single letters get braces. Where one has no second argument, all stay as they are. */
function bracedFractions(text: string): string {
  const [first, ...others] = text.split('\\frac');
  let braced = first!;
  for (const other of others) {
    const [a, b, ...left] = Array.from(other);
    if (a === '{') braced += `\\frac${other}`;
    else if (a === undefined || b === undefined) return text;
    else braced += `\\frac{${a}}${b === '{' ? b : `{${b}}`}${left.join('')}`;
  }
  return braced;
}

/** a/b of two whole numbers as a fraction; a part with a root may be anything. */
function slashedFraction(text: string): string {
  const [a, b, ...others] = text.split('/');
  const isPart = (part: string): boolean => part.includes('sqrt') || /^(?:0|-?[1-9]\d*)$/.test(part);
  return b === undefined || others.length > 0 || !isPart(a!) || !isPart(b) ? text : `\\frac{${a}}{${b}}`;
}

export function normalForm(answer: string): string {
  let left = strip(answer).replaceAll('\n', '');
  if (left.length > MAX_LETTERS) return left;
  left = replaced(left.replace(/(?<!\.)\.+$/, ''), LOOKS);
  left = strip(left.replace(/\\text\{[^\n]*?\}$/g, '')) || left;
  left = digitsOfWords(replaced(withoutUnits(left), MARKS));
  left = replaced(left.replace(/\\text\{([^\n]*?)\}/g, '$1'), NAMES);
  if (!left.includes('\\infty')) left = left.replaceAll('inf', '\\infty');
  left = replaced(left, WORDS);
  if (!left.includes('i')) left = left.replaceAll('j', 'i');
  left = left.replace(/(?<!\p{Nd})(\p{Nd}+)\.0*(\P{Nd})/gu, '$1$2').replace(/(?<!\p{Nd})(\p{Nd}+)\.0*$/u, '$1');
  if (left.startsWith('.')) left = `0${left}`;
  const sides = left.split('=');
  if (sides.length === 2 && codePointLength(sides[0]!) <= 2) left = sides[1]!;
  left = left.replace(/\\sqrt([\p{L}\p{N}_]+)/gu, '\\sqrt{$1}').replaceAll(' ', '');
  return slashedFraction(bracedFractions(left));
}
