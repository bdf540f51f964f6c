/** What a task that generates text asks for. */
import type { Dict, Value } from '../../python/value.js';
import { Float, isInt } from '../../python/value.js';
import type { Keys } from './keys.js';

/** What generate_until takes: the task's settings with the harness's defaults. */
export function generation(keys: Keys, delimiter: string): Dict {
  if (keys.get('generation_kwargs') === null) {
    return new Map<string, Value>([
      ['temperature', new Float(0)],
      ['do_sample', false],
      ['max_gen_toks', 256],
      ['until', [delimiter]],
    ]);
  }
  const settings = new Map(keys.dict('generation_kwargs'));
  const temperature = settings.get('temperature');
  if (isInt(temperature)) settings.set('temperature', new Float(Number(temperature)));
  if (!settings.has('until')) settings.set('until', [delimiter]);
  return settings;
}
