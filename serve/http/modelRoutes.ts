/** `/v1/models`: which models there are. */
import { ApiError } from '../apiError.js';
import type { Route } from '../exchange.js';
import type { ModelClient, ServedModel } from '../models.js';

const entry = ({ created, maxLength, scoring, adapter, names: [root] }: ServedModel, id: string) => ({
  id,
  object: 'model',
  created,
  owned_by: 'tilewright',
  ...(adapter === undefined ? { root } : { root: adapter.path, parent: adapter.parent }),
  max_model_len: maxLength,
  gives_scores: scoring !== undefined,
});

export function modelRoutes(client: ModelClient): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/v1/models',
      handle: (exchange) =>
        exchange.reply(200, {
          object: 'list',
          data: client.models.flatMap((model) => model.names.map((name) => entry(model, name))),
        }),
    },
    {
      method: 'GET',
      path: '/v1/models/:model',
      handle: (exchange) => {
        const name = exchange.params['model'] ?? '';
        const model = client.models.find(({ names }) => names.includes(name));
        if (model === undefined)
          throw new ApiError(404, 'There is no such model. GET /v1/models lists them.', {
            code: 'model_not_found',
            param: 'model',
          });
        exchange.reply(200, entry(model, name));
      },
    },
  ];
}
