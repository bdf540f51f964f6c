import { expect, it } from 'vitest';
import { shortNamer, shortNames } from '../../report/collect/shortNames.js';

it.each([
  [['/home/a/results'], ['results']],
  [
    ['demo', './demo/', '/x/demo'],
    ['demo', 'demo', 'x/demo'],
  ],
  [
    ['/a/one/trace.json', '/a/two/trace.json', '/b/other.json'],
    ['one/trace.json', 'two/trace.json', 'other.json'],
  ],
  [
    ['/x/run/a', '/y/run/a', '/y/run/b'],
    ['x/run/a', 'y/run/a', 'b'],
  ],
  [
    ['C:\\models\\llama', 'meta/llama-3'],
    ['llama', 'llama-3'],
  ],
  [
    ['/', ''],
    ['/', ''],
  ],
])('%j is called %j', (paths, names) => {
  expect(shortNames(paths)).toEqual(names);
});

it('a text names files as the page does', () => {
  const paths = ['/r/a/samples.jsonl', '/r/a/samples.jsonl.2', '/r/b/samples.jsonl', ''];
  expect(shortNamer(paths)('/r/a/samples.jsonl.2: cut; /r/b/samples.jsonl: $& cut')).toBe(
    'samples.jsonl.2: cut; b/samples.jsonl: $& cut',
  );
});
