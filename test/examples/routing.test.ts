/** The files of examples/ for routers: what they name is what the code has. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { configOf } from '../../route/proxy/config.js';
import { endpointOf } from '../../route/proxy/endpoints.js';
import { runCli } from '../cli/fakeIo.js';

const FOLDER = join(import.meta.dirname, '..', '..', 'examples', 'kubernetes');

type Json = { readonly [key: string]: unknown };
const at = (value: unknown, ...path: readonly (string | number)[]): unknown =>
  path.reduce<unknown>((so, key) => (so as { readonly [key: string | number]: unknown })[key], value);
const documentsOf = (file: string): readonly Json[] =>
  parseAllDocuments(readFileSync(join(FOLDER, file), 'utf8')).map((document) => {
    if (!('errors' in document) || document.errors.length > 0) throw new Error(`${file}: no YAML`);
    return document.toJS() as Json;
  });

describe('examples/kubernetes/router.yaml', () => {
  const [map, deployment, service] = documentsOf('router.yaml');
  const pod = at(deployment, 'spec', 'template', 'spec');
  const container = at(pod, 'containers', 0);
  const variables = (at(container, 'env') as readonly Json[]).map(({ name }) => String(name));
  const config = configOf(JSON.parse(String(at(map, 'data', 'route.json'))), 'route.json', (name) =>
    variables.includes(name) ? 'key' : undefined,
  );

  it('has a configuration that is taken, with the variables that it sets', () => {
    expect(config.replicas.map(({ key }) => key)).toEqual(['key', 'key']);
    expect([config.clientKeys, config.adminKeys]).toEqual([['key'], ['key']]);
    const paths = (at(container, 'volumeMounts') as readonly Json[]).map(({ mountPath }) => String(mountPath));
    for (const { path } of config.adapters) expect(paths.some((mount) => path.startsWith(`${mount}/`))).toBe(true);
  });

  it('starts a router with flags that it has, at ports and paths that it answers', async () => {
    const { stdout } = await runCli(['route', '--help']);
    for (const arg of at(container, 'args') as readonly string[])
      expect(stdout, arg).toMatch(new RegExp(`^ +(-\\w, )?${arg.split('=')[0]}\\b`, 'm'));
    expect(at(container, 'ports')).toEqual([{ name: 'http', containerPort: config.listen.port }]);
    for (const probe of ['readinessProbe', 'livenessProbe'])
      expect(endpointOf('GET', String(at(container, probe, 'httpGet', 'path')))).toHaveProperty('kind');
    const labels = at(deployment, 'spec', 'template', 'metadata', 'labels');
    expect(at(service, 'spec', 'selector')).toEqual(labels);
    expect(at(deployment, 'spec', 'selector', 'matchLabels')).toEqual(labels);
  });

  it('leaves what runs the time that it was promised', () => {
    const [, before] = at(container, 'lifecycle', 'preStop', 'exec', 'command') as readonly string[];
    const needed = Number(before) + config.limits.drainSeconds;
    expect(at(pod, 'terminationGracePeriodSeconds')).toBeGreaterThanOrEqual(needed + 5);
  });
});

it('examples/kubernetes/pool.yaml selects the pods of server.yaml', () => {
  const [pool, route] = documentsOf('pool.yaml');
  const [deployment] = documentsOf('server.yaml');
  const template = at(deployment, 'spec', 'template');
  expect(at(pool, 'spec', 'selector', 'matchLabels')).toEqual(at(template, 'metadata', 'labels'));
  expect(at(pool, 'spec', 'targetPorts')).toEqual([
    { number: at(template, 'spec', 'containers', 0, 'ports', 0, 'containerPort') },
  ]);
  const [backend] = at(route, 'spec', 'rules', 0, 'backendRefs') as readonly Json[];
  expect([backend!['kind'], backend!['name']]).toEqual([at(pool, 'kind'), at(pool, 'metadata', 'name')]);
});
