import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { DEMO, temporaryFolder, userError } from './support.js';

describe('a path that is no folder', () => {
  it.each([
    ['nowhere', `there is no such folder in ${process.cwd()}`, 'give the folder of a Hugging Face checkpoint'],
    ['/nowhere/owner/name', '/nowhere/owner/name: there is no such folder', 'give the folder of a Hugging Face'],
    ['owner/some-model', 'owner/some-model: there is no', 'hf download owner/some-model --local-dir some-model'],
    ['my model.tw', 'my model.tw: there is no such folder', "tilewright compile CHECKPOINT -o 'my model.tw'"],
    [join(DEMO, 'config.json'), 'config.json is a file', `give the folder ${DEMO}, or make weights up for this file`],
    [join(DEMO, 'model.safetensors'), 'model.safetensors is a file', `give the folder ${DEMO}`],
    [join(DEMO, 'config.json', 'x'), 'there is no such folder', 'give the folder of'],
  ])('%s gets a hint', (path, message, hint) => {
    const error = userError(() => openCheckpoint(path));
    expect([error.message, error.hint]).toEqual([expect.stringContaining(message), expect.stringContaining(hint)]);
    expect(`${error.message}${error.hint}`).not.toContain('\n');
  });

  it('is refused with made-up weights, but for a config.json', () => {
    const file = join(temporaryFolder(), 'weights');
    writeFileSync(file, '');
    expect(userError(() => describeRandomCheckpoint(file, 1)).message).toContain('is a file');
    expect(describeRandomCheckpoint(join(DEMO, 'config.json'), 1).config.layers).toBe(8);
  });
});
