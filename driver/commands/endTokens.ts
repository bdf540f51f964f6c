/** Which tokens end a text. Everything that writes texts asks here, and so do the names of what it wrote. */
import type { RunIdentity } from '../../eval/index.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { readGenerationConfig } from '../../models/generationConfig.js';
import { readTextDefaults } from '../../models/textDefaults.js';

/** Those of config.json and generation_config.json. Throws UserError where the latter is damaged. */
export const endTokensOf = (checkpoint: Pick<Checkpoint, 'path' | 'config'>): ReadonlySet<number> =>
  readGenerationConfig(checkpoint).eosTokenIds;

/** What journals and shards know of texts besides the model and its prompts: files beside the weights decide it. */
export function textsIdentity(checkpoint: Pick<Checkpoint, 'path' | 'config'>): RunIdentity {
  const { defaults } = readTextDefaults(checkpoint);
  const ends = [...endTokensOf(checkpoint)].sort((a, b) => a - b);
  return {
    endTokens: ends.join(','),
    ...(Object.keys(defaults).length === 0 ? {} : { textDefaults: JSON.stringify(defaults) }),
  };
}
