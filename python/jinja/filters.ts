/** Jinja's filters by name. */
import { repr } from '../show.js';
import { Float, isDict, isTruthy, type Value } from '../value.js';
import { attributeOnly } from './attributes.js';
import { Failure } from './failure.js';
import { filter, plainText, type Context, type Filter, type NamedFilter } from './filter.js';
import { bind, wholeOf } from './items.js';
import { htmlJson, plainJson } from './json.js';
import { LIST_FILTERS } from './listFilters.js';
import { absolute, floatNumber, round, wholeNumber } from './numbers.js';
import { isPlainList, textOf, Undefined, type Named } from './objects.js';
import { compareText } from './operators.js';
import { regexReplace } from './regexReplace.js';
import { TEXT_FILTERS } from './textFilters.js';

/** pprint writes longer values on several lines. */
const LINE = 80;

function printed(value: Value, { work }: Context): string {
  const sorted = (part: Value): Value => {
    if (isPlainList(part)) return part.map(sorted);
    if (!isDict(part)) return part;
    return new Map([...part].toSorted(([a], [b]) => compareText(a, b)).map(([key, item]) => [key, sorted(item)]));
  };
  work.walk(value);
  const text = repr(sorted(value));
  if (text.length > LINE)
    throw new Failure('TemplateRuntimeError', `pprint of more than ${LINE} letters is not supported`);
  return text;
}

const OWN: readonly NamedFilter[] = [
  ...TEXT_FILTERS,
  ...LIST_FILTERS,
  ...filter('default d', 'default_value? boolean?', (value, [otherwise = '', isForFalse = false]) =>
    value instanceof Undefined || (isTruthy(isForFalse) && !isTruthy(value)) ? otherwise : value,
  ),
  ...filter('attr', 'name', (value, [name = null], context) => attributeOnly(value, plainText(name, context), context)),
  ...filter('int', 'default? base?', (value, [otherwise = 0, base], { work }) => {
    // Each digit multiplies all before it.
    work.spend(Math.min(textOf(value)?.length ?? 0, 1 << 13) ** 2 / 2048);
    return wholeNumber(value, wholeOf(base, 10)) ?? otherwise;
  }),
  ...filter('float', 'default?', (value, [otherwise = new Float(0)]) => floatNumber(value) ?? otherwise),
  ...filter('abs', '', absolute),
  ...filter('round', 'precision? method?', (value, [precision = 0, method = 'common'], { work }) =>
    round(value, precision, method, work),
  ),
  ...filter('pprint', '', (value, _args, context) => printed(value, context)),
];

/** Of transformers' environment. */
export const CHAT_FILTERS: ReadonlyMap<string, Filter> = new Map([
  ...OWN,
  ...filter('tojson', 'ensure_ascii? indent? separators? sort_keys?', (value, args, { work }) =>
    plainJson(value, args, work),
  ),
]);

/** Of the public harness' environment. */
export const TASK_FILTERS: ReadonlyMap<string, Filter> = new Map([
  ...OWN,
  ...filter('tojson', 'indent?', (value, [indent], { work }) => htmlJson(value, indent, work)),
  ...filter('regex_replace', 'pattern repl count?', (value, [pattern = null, by = null, count], { work }) =>
    regexReplace(value, pattern, by, wholeOf(count, 0), work),
  ),
]);

/** value|name(args); undefined if there is no such filter. Throws Failure. */
export function runFilter(
  filters: ReadonlyMap<string, Filter>,
  name: string,
  value: Value,
  args: readonly Value[],
  named: Named,
  context: Context,
): Value | undefined {
  const found = filters.get(name);
  if (found === undefined) return undefined;
  context.work.spend();
  const bound = found.parameters === undefined ? args : bind(`${name}()`, found.parameters, args, named);
  return found.run(value, bound, context, named);
}
