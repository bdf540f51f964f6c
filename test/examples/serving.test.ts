/** The files of examples/ for servers: what they name is what the code has. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { seconds } from '../../cli/options.js';
import { routesOf } from '../../serve/http/routes.js';
import { stateRoutes } from '../../serve/http/serverState.js';
import { HttpCounts } from '../../serve/metrics/httpCounts.js';
import { ServerMetrics } from '../../serve/metrics/serverMetrics.js';
import { readSettings } from '../../settings.js';
import { runCli } from '../cli/fakeIo.js';
import { type Served, servedModels } from '../support/servedModels.js';

const EXAMPLES = join(import.meta.dirname, '..', '..', 'examples');

type Json = { readonly [key: string]: unknown };
const at = (value: unknown, ...path: readonly (string | number)[]): unknown =>
  path.reduce<unknown>((so, key) => (so as { readonly [key: string | number]: unknown })[key], value);

let served: Served;
beforeAll(() => {
  served = servedModels();
});
afterAll(() => served.close());

/** Paths that are answered without a key: what probes and Prometheus ask. */
const openPaths = (): readonly string[] =>
  [...stateRoutes(() => ({ phase: 'ready', active: 0, version: '' })), ...routesOf(served.client)].flatMap(
    ({ path, isOpen }) => (isOpen === true ? [path] : []),
  );

describe('examples/kubernetes', () => {
  const documentsOf = (file: string): readonly Json[] =>
    parseAllDocuments(readFileSync(join(EXAMPLES, 'kubernetes', file), 'utf8')).map((document) => {
      if (!('errors' in document) || document.errors.length > 0) throw new Error(`${file}: no YAML`);
      return document.toJS() as Json;
    });
  const [deployment, service] = documentsOf('server.yaml');
  const pod = at(deployment, 'spec', 'template', 'spec');
  const container = at(pod, 'containers', 0);
  const args = at(container, 'args') as readonly string[];
  const flag = (name: string): string => args.find((arg) => arg.startsWith(`${name}=`))!.slice(name.length + 1);

  it('starts a server with flags that it has, and variables that it reads', async () => {
    const { stdout } = await runCli(['serve', '--help']);
    for (const arg of args) expect(stdout, arg).toMatch(new RegExp(`^ +(-\\w, )?${arg.split('=')[0]}\\b`, 'm'));
    expect(at(container, 'command', 1)).toBe('serve');
    const settings = readFileSync(join(EXAMPLES, '..', 'settings.ts'), 'utf8');
    const names = (at(container, 'env') as readonly Json[]).map(({ name }) => name);
    for (const name of names) expect(settings).toContain(`'${String(name)}'`);
    expect(readSettings({ TILEWRIGHT_API_KEY: 'secret' }).apiKey).toBe('secret');
    expect(names).toContain('TILEWRIGHT_API_KEY');
  });

  it('asks ports that are open, and paths that need no key', () => {
    const [port] = at(container, 'ports') as readonly Json[];
    expect(port).toEqual({ name: 'http', containerPort: Number(flag('--port')) });
    expect(flag('--host')).toBe('0.0.0.0');
    for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
      const { path, port: asked } = at(container, probe, 'httpGet') as Json;
      expect([asked, openPaths().includes(String(path))], probe).toEqual(['http', true]);
    }
    expect(at(service, 'spec', 'ports', 0, 'targetPort')).toBe('http');
    const labels = at(deployment, 'spec', 'template', 'metadata', 'labels');
    expect(at(service, 'spec', 'selector')).toEqual(labels);
    expect(at(deployment, 'spec', 'selector', 'matchLabels')).toEqual(labels);
    const monitors = documentsOf('monitor.yaml');
    const [ofPods, ofServices] = monitors;
    const endpoints = [at(ofPods, 'spec', 'podMetricsEndpoints', 0), at(ofServices, 'spec', 'endpoints', 0)];
    for (const endpoint of endpoints) {
      expect(endpoint).toMatchObject({ port: 'http' });
      expect(openPaths()).toContain(at(endpoint, 'path'));
    }
    for (const monitor of monitors) expect(at(monitor, 'spec', 'selector', 'matchLabels')).toEqual(labels);
  });

  it('leaves what runs the time that it was promised', () => {
    const [sleep, before] = at(container, 'lifecycle', 'preStop', 'exec', 'command') as readonly string[];
    expect(sleep).toBe('sleep');
    const needed = Number(before) + seconds('--shutdown-timeout', flag('--shutdown-timeout'));
    expect(at(pod, 'terminationGracePeriodSeconds')).toBeGreaterThanOrEqual(needed + 5);
  });

  it('mounts every folder that it names', () => {
    const mounts = at(container, 'volumeMounts') as readonly Json[];
    const volumes = (at(pod, 'volumes') as readonly Json[]).map(({ name }) => name);
    for (const { name } of mounts) expect(volumes).toContain(name);
    const paths = mounts.map(({ mountPath }) => String(mountPath));
    const cache = at(container, 'env') as readonly Json[];
    for (const path of [
      String(at(container, 'command', 2)),
      String(cache.find(({ name }) => name === 'TILEWRIGHT_CACHE')?.['value']),
    ])
      expect(
        paths.some((mount) => path.startsWith(mount)),
        path,
      ).toBe(true);
  });
});

describe('docs/serving.md', () => {
  const text = readFileSync(join(EXAMPLES, '..', 'docs', 'serving.md'), 'utf8');
  const flagsIn = (some: string): readonly string[] => [...new Set(some.match(/--[a-z][a-z-]*[a-z]/g))];
  const helpOf = async (command: string): Promise<readonly string[]> =>
    [...(await runCli([command, '--help'])).stdout.matchAll(/^ +(?:-\w, )?(--[a-z-]+)/gm)].map(([, flag]) => flag!);

  it('names every flag of serve that generate does not have, and none that there is not', async () => {
    const [serve, generate] = [await helpOf('serve'), await helpOf('generate')];
    const own = serve.filter((flag) => !generate.includes(flag));
    expect(own.length).toBeGreaterThan(8);
    for (const flag of own) expect(flagsIn(text)).toContain(flag);
    const sections = text.split(/^## /m);
    const [table = ''] = sections.filter((section) => section.startsWith('Flags'));
    for (const flag of flagsIn(table)) expect(serve, flag).toContain(flag);
  });

  it('names endpoints that there are, and all of them', () => {
    const routes = [...stateRoutes(() => ({ phase: 'ready', active: 0, version: '' })), ...routesOf(served.client)];
    const [, table = ''] = /^## Endpoints\n(.*?)^Fields/ms.exec(text) ?? [];
    const named = [...table.matchAll(/`(?:(?:GET|POST) )?(\/[^`]*)`/g)].map(([, path = '']) => path);
    const paths = [...new Set(routes.map(({ path }) => path.replace('/:model', '/NAME')))];
    expect([...named].filter((path) => path !== '/').sort()).toEqual(paths.sort());
  });

  it('names metrics that there are', async () => {
    const all = await new ServerMetrics(served.client).text();
    const names = [...text.matchAll(/`((?:vllm|tilewright|process|http)[:_]\w+)/g)].map(([, name]) => name!);
    expect(names.length).toBeGreaterThan(15);
    for (const name of names) expect(all).toContain(`# TYPE ${name} `);
  });
});

describe('examples/grafana', () => {
  interface Board {
    readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly expr: string }[] }[];
    readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
  }
  const board = JSON.parse(readFileSync(join(EXAMPLES, 'grafana', 'tilewright.json'), 'utf8')) as Board;

  it('reads metrics and labels that exist', async () => {
    const counts = new HttpCounts();
    counts.add('/v1/models', 'GET', 200);
    const text = await new ServerMetrics(served.client, counts).text();
    const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    const metrics = new Set(lines.map((line) => /^[\w:]+/.exec(line)![0]));
    const labels = new Set([...text.matchAll(/([a-z_]+)="/g)].map(([, label]) => label!));
    // What Prometheus adds to every line.
    labels.add('instance');
    const queries = [
      ...board.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
      ...board.templating.list.map(({ query }) => (typeof query === 'string' ? '' : String(at(query, 'query')))),
    ];
    let count = 0;
    for (const query of queries) {
      for (const [name] of query.matchAll(/\b(?:vllm|tilewright):\w+|\b(?:process|http)_\w+/g)) {
        expect(metrics, query).toContain(name);
        count++;
      }
      for (const [, label] of query.matchAll(/[{,]\s*(\w+)\s*=~?"/g)) expect(labels, query).toContain(label);
      for (const [, list = ''] of query.matchAll(/\bby \(([^)]*)\)/g)) expect(labels, query).toContain(list.trim());
      for (const [, variable = ''] of query.matchAll(/\$(\w+)/g))
        expect(['__rate_interval', ...board.templating.list.map(({ name }) => name)], query).toContain(variable);
    }
    expect(count).toBeGreaterThanOrEqual(queries.filter((query) => query !== '').length);
  });

  it('lays panels beside each other, none over another', () => {
    const taken = new Set<string>();
    for (const panel of board.panels) {
      const { x, y, w, h } = at(panel, 'gridPos') as Record<'x' | 'y' | 'w' | 'h', number>;
      expect(x + w).toBeLessThanOrEqual(24);
      for (let i = x; i < x + w; i++)
        for (let j = y; j < y + h; j++) {
          expect(taken.has(`${i},${j}`), panel.title).toBe(false);
          taken.add(`${i},${j}`);
        }
    }
  });
});
