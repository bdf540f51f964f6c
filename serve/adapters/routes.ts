/** POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them; and adapters that bodies name. */
import { z } from 'zod';
import { ApiError } from '../apiError.js';
import type { Exchange, Route } from '../exchange.js';
import type { AdapterModels, ModelClient } from '../models.js';
import { readBody } from '../sampling.js';

const loadSchema = z.object({
  lora_name: z.string('expected the name that clients will ask for'),
  lora_path: z.string('expected the path of a folder on the server').min(1).max(4096),
  load_inplace: z.boolean('expected true or false').optional(),
});
const unloadSchema = z.object({ lora_name: z.string('expected the name of an adapter') });

const HOW = 'start the server with --adapter-updates to let clients load and unload adapters';

/** Throws ApiError 403 where the server's owner has not allowed it. */
function requireUpdates(adapters: AdapterModels | undefined): AdapterModels {
  if (adapters?.allowsUpdates === true) return adapters;
  throw new ApiError(403, adapters === undefined ? `the model has no slots for adapters: ${HOW}` : HOW);
}

export const adapterRoutes = ({ adapters }: ModelClient): readonly Route[] => [
  {
    method: 'POST',
    path: '/v1/load_lora_adapter',
    handle: async (exchange) => {
      const names = requireUpdates(adapters);
      const { lora_name: name, lora_path: path, load_inplace: inPlace } = readBody(loadSchema, await exchange.json());
      await names.load(name, path, inPlace === true);
      exchange.replyText(200, `Success: LoRA adapter '${name}' added successfully.`, 'text/plain; charset=utf-8');
    },
  },
  {
    method: 'POST',
    path: '/v1/unload_lora_adapter',
    handle: async (exchange) => {
      const names = requireUpdates(adapters);
      const { lora_name: name } = readBody(unloadSchema, await exchange.json());
      await names.unload(name);
      exchange.replyText(200, `Success: LoRA adapter '${name}' removed successfully.`, 'text/plain; charset=utf-8');
    },
  },
];

/** The route, before which the adapter that a body names is looked up in the folder of adapters. */
export function findingAdapters(route: Route, { adapters }: ModelClient): Route {
  if (adapters === undefined || route.method !== 'POST') return route;
  return {
    ...route,
    handle: async (exchange) => {
      let leave: (() => void) | undefined;
      const json = async (): Promise<Awaited<ReturnType<Exchange['json']>>> => {
        const body = await exchange.json();
        await adapters.find(body['model']);
        leave ??= adapters.hold(body['model']);
        return body;
      };
      try {
        await route.handle(Object.create(exchange, { json: { value: json } }) as Exchange);
      } finally {
        leave?.();
      }
    },
  };
}
