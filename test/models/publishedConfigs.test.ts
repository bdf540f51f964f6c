/** Configurations as they are published: those of families that are read, and what each other one is called. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describeModel } from '../../models/config.js';
import { ARCHITECTURES } from '../../models/families/registry.js';
import { type Json, READ } from './publishedConfigs.js';
import { REFUSED, UNKNOWN } from './refusedConfigs.js';
import { SHARED, skipReason, userError } from './support.js';

describe('configurations as they are published', () => {
  it.each(READ)('%s is read', (_, config, family) => {
    expect(describeModel(config, 'config.json').config.architecture).toBe(family);
  });

  it.each(REFUSED)('%s is refused with what it is', (_, config, says) => {
    const { message, hint } = userError(() => describeModel(config, 'config.json'));
    expect(message).toContain(says);
    if (says.endsWith(UNKNOWN)) expect(message).not.toContain(': it is');
    expect(message).toMatch(/^config\.json: [^\n]*$/);
    expect(message).not.toContain('nearest');
    if (!message.includes('does not belong')) {
      expect(hint).toContain('docs/families.md');
      expect(hint).not.toContain('download');
    }
  });
});

const FAMILIES = join(SHARED, 'checkpoints', 'families');
describe.skipIf(!existsSync(FAMILIES))(skipReason('tiny checkpoints of 50 families'), () => {
  it.each(existsSync(FAMILIES) ? readdirSync(FAMILIES) : [])('%s is read or named as not supported', (name) => {
    const json = JSON.parse(readFileSync(join(FAMILIES, name, 'config.json'), 'utf8')) as Json;
    const known = ARCHITECTURES.find((family) => family.modelType === json['model_type']);
    if (known !== undefined) expect(describeModel(json, 'x').config.architecture).toBe(known.name);
    else expect(userError(() => describeModel(json, 'x')).message).toContain('is not supported');
  });
});
