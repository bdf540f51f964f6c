/** The file of a router: what is taken, and what errors say. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { configOf, EXAMPLE_CONFIG, type RouteConfig } from '../../../route/proxy/config.js';

const ROOT = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));
const VARIABLES: Readonly<Record<string, string>> = { KEY: 'secret', SPACE: 'a b' };
const read = (value: unknown): RouteConfig => configOf(value, 'r.json', (name) => VARIABLES[name]);

function refusal(value: unknown): string {
  try {
    read(value);
  } catch (error) {
    if (error instanceof UserError) return `${error.message} | ${error.hint}`;
    throw error;
  }
  return 'taken';
}

const replicas = [{ url: 'http://a:1' }];

describe('a configuration', () => {
  it('needs replicas only', () => {
    const config = read(JSON.parse(EXAMPLE_CONFIG));
    expect(config).toMatchObject({
      listen: { host: '127.0.0.1', port: 8100 },
      replicas: [{ id: '127.0.0.1:8000', url: 'http://127.0.0.1:8000', weight: 1 }],
      policy: { epsilon: 0.5, placementSeconds: 30, quietPeriods: 3 },
      limits: { attempts: 4 },
    });
    expect(() => read(JSON.parse(readFileSync(join(ROOT, 'examples', 'route.json'), 'utf8')))).not.toThrow();
  });

  it('takes keys from the environment', () => {
    const config = read({
      replicas: [{ url: 'https://a/v1', keyVariable: 'KEY', name: 'first' }],
      clientKeyVariables: ['KEY'],
    });
    expect(config.replicas[0]).toMatchObject({ id: 'first', url: 'https://a', key: 'secret' });
    expect([config.clientKeys, config.adminKeys]).toEqual([['secret'], []]);
  });

  it.each([
    [{}, 'r.json: replicas: '],
    [{ replicas: [] }, 'r.json: replicas: '],
    [{ replicas, replica: 1 }, 'r.json: there is no field "replica" | did you mean "replicas"?'],
    [
      { replicas: [{ url: 'http://a', wieght: 2 }] },
      'r.json: replicas[0]: there is no field "wieght" | did you mean "weight"?',
    ],
    [{ replicas, policy: { epsilonn: 1 } }, 'r.json: policy: there is no field "epsilonn" | did you mean "epsilon"?'],
    [{ replicas: [{ url: 'ftp://a' }] }, 'r.json: replicas[0].url: expected http:// or https://'],
    [{ replicas: [{ url: 'http://u:p@a' }] }, 'r.json: replicas[0].url: expected http://'],
    [{ replicas: [{ url: 'http://a/other' }] }, 'r.json: replicas[0].url: expected http://'],
    [{ replicas: [...replicas, { url: 'http://a:1/' }] }, 'r.json: replicas[0] and [1] have one url: http://a:1'],
    [
      {
        replicas: [
          { url: 'http://a', name: 'x' },
          { url: 'http://b', name: 'x' },
        ],
      },
      'have one name: x',
    ],
    [
      { replicas: [{ url: 'http://a', keyVariable: 'NONE' }] },
      'replicas[0].keyVariable: the environment variable NONE is not set',
    ],
    [{ replicas, clientKeyVariables: ['SPACE'] }, 'clientKeyVariables[0]: the environment variable SPACE holds no key'],
    [
      { replicas, adapters: { 'a@b': { base: 'm', path: 'p' } } },
      'r.json: adapters."a@b": expected 1 to 200 letters, without @',
    ],
    [{ replicas, adapters: { m: { base: 'm', path: 'p' } } }, 'has the name of its base'],
    [{ replicas, adapters: { a: { base: 'm' } } }, 'r.json: adapters.a.path: '],
    [{ replicas, limits: { attempts: 0 } }, 'r.json: limits.attempts: '],
    [{ replicas, probe: { periodSeconds: 1e9 } }, 'r.json: probe.periodSeconds: '],
    [[], 'r.json: '],
  ])('%j is refused', (value, words) => {
    expect(refusal(value)).toContain(words);
  });
});
