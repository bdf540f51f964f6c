/** Adapters of requests, as gateways that pick a server read them: vLLM's names and labels. */
import { Gauge, type Registry } from 'prom-client';
import type { AdapterLoad, ModelStats } from '../../engine/modelStats.js';
import type { ModelClient, ServedModel } from '../models.js';

/** A model without adapter, and what its engine said last. */
export interface AdapterCounts {
  readonly model: ServedModel;
  readonly stats: ModelStats;
}

/** Digits of a hash that stand for an adapter whose name was taken away while requests still run. */
const DIGITS = 12;

/** Names stand in lists with commas between them. */
const listable = (name: string): string => name.replaceAll('%', '%25').replaceAll(',', '%2C');

/** The names of models that have this adapter of `base`. */
const modelsOf = ({ adapters }: ModelClient, base: ServedModel, hash: string): readonly ServedModel[] =>
  adapters?.models.filter(({ key, adapter }) => key === base.key && adapter?.hash === hash) ?? [];

/** The names of those that `has` picks, with commas between them. */
function listOf(client: ModelClient, { model, stats }: AdapterCounts, has: (load: AdapterLoad) => boolean): string {
  const names = (stats.adapters?.adapters ?? []).filter(has).flatMap(({ hash }) => {
    const named = modelsOf(client, model, hash).map(({ names: [name] }) => listable(name!));
    return named.length > 0 ? named : [hash.slice(0, DIGITS)];
  });
  return names.sort().join(',');
}

/** Lines of models that have slots; others have none. */
export function describeAdapters(registry: Registry, client: ModelClient, counts: readonly AdapterCounts[]): void {
  const registers = [registry];
  const labelNames = ['model_name', 'engine'];
  const labelsOf = ({ names }: ServedModel): Readonly<Record<string, string>> => ({
    ...{ model_name: names[0]!, engine: '0' },
  });
  new Gauge({
    ...{ name: 'vllm:lora_requests_info', help: 'Adapters of requests that run and wait; the value is the time.' },
    ...{ registers, labelNames: ['max_lora', 'running_lora_adapters', 'waiting_lora_adapters'] },
    collect() {
      this.reset();
      for (const each of counts)
        if (each.stats.adapters !== undefined)
          this.set(
            {
              max_lora: String(each.stats.adapters.slots),
              running_lora_adapters: listOf(client, each, ({ running }) => running > 0),
              waiting_lora_adapters: listOf(client, each, ({ waiting }) => waiting > 0),
            },
            Date.now() / 1000,
          );
    },
  });
  new Gauge({
    ...{ name: 'vllm:lora_adapter_loaded', help: 'Adapters by name that have a slot on a device.', registers },
    labelNames: [...labelNames, 'adapter_name', 'level', 'rank'],
    collect() {
      this.reset();
      for (const { model, stats } of counts)
        for (const { hash, loaded } of stats.adapters?.adapters ?? [])
          if (loaded > 0)
            for (const { names, adapter } of modelsOf(client, model, hash))
              this.set({ ...labelsOf(model), adapter_name: names[0]!, level: 'gpu', rank: String(adapter!.rank) }, 1);
    },
  });
  const gauges: readonly (readonly [name: string, help: string, of: (stats: ModelStats['adapters'] & {}) => number])[] =
    [
      [
        'vllm:num_gpu_loaded_lora_adapters',
        'Adapters that have a slot on a device.',
        ({ adapters }) => adapters.filter(({ loaded }) => loaded > 0).length,
      ],
      ['vllm:max_gpu_lora_adapters', 'Slots for adapters on each device.', ({ slots }) => slots],
    ];
  for (const [name, help, of] of gauges)
    new Gauge({
      ...{ name, help, labelNames, registers },
      collect() {
        this.reset();
        for (const { model, stats } of counts)
          if (stats.adapters !== undefined) this.set(labelsOf(model), of(stats.adapters));
      },
    });
}
