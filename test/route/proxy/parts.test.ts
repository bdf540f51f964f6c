/** Pieces of a router that look at bytes: bodies, names in answers, events, metrics, headers. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { scanBody, withModel } from '../../../route/proxy/bodyScan.js';
import { EventGate } from '../../../route/proxy/eventGate.js';
import { forwardedHeaders, returnedHeaders } from '../../../route/proxy/headers.js';
import { readMetrics } from '../../../route/proxy/metricsText.js';
import { ModelRenamer } from '../../../route/proxy/renameModel.js';

const scan = (text: string): ReturnType<typeof scanBody> => scanBody(Buffer.from(text));

describe('a body', () => {
  it('says what is asked for', () => {
    expect(scan('{"model": "m", "prompt": "abc", "max_tokens": 7, "n":3, "stream":true}')).toMatchObject({
      ...{ model: 'm', isStream: true, promptBytes: 5, maxTokens: 21, prefix: Buffer.from('"abc"') },
    });
    expect(scan('{}')).toMatchObject({ isStream: false, promptBytes: 0 });
    // The last of two, as JSON.parse has it, also where its key is escaped.
    expect(scan('{"model":"a","mod\\u0065l":"b"}')?.model).toBe('b');
    expect(scan('{"x":{"model":"a"},"y":"\\\\\\"","model":3}')?.model).toBeUndefined();
  });

  it.each(['', 'x', '[]', '{"a"}', '{"a":1', '{"a":1}x', '{"a":"', '{"a":[}', '{a:1}', '{"a":1,}', '"{}"'])(
    '%j is no object',
    (text) => {
      expect(scan(text)).toBeUndefined();
    },
  );

  it('of any object has the model that JSON.parse finds, and takes another', () => {
    const noise = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 4 });
    fc.assert(
      fc.property(
        noise,
        noise,
        fc.string(),
        fc.string(),
        fc.constantFrom(undefined, 1),
        (a, b, model, other, space) => {
          const text = JSON.stringify({ ...a, model, ...b, ...('model' in b ? { model } : {}) }, null, space);
          const bytes = Buffer.from(text);
          const facts = scanBody(bytes)!;
          const parsed = JSON.parse(text) as Record<string, unknown>;
          expect(facts.model).toBe(parsed['model']);
          expect(JSON.parse(withModel(bytes, facts, other).toString())).toEqual({ ...parsed, model: other });
        },
      ),
    );
  });

  it('of any text is looked at without harm', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('{', '}', '[', ']', '"', '\\', ':', ',', 'model', '1', ' ')), (parts) => {
        const text = parts.join('');
        let value: unknown;
        try {
          value = JSON.parse(text);
        } catch {
          return;
        }
        expect(scan(text) !== undefined).toBe(typeof value === 'object' && value !== null && !Array.isArray(value));
      }),
    );
  });
});

describe('a name in an answer', () => {
  it('is replaced wherever chunks are cut', () => {
    const text = '{"id":1,"model":"a@1","text":"\\"model\\":\\"a@1\\" a@1"}{"model": "a@1"}"model":"a@11"';
    const wanted = '{"id":1,"model":"a","text":"\\"model\\":\\"a@1\\" a@1"}{"model":"a"}"model":"a@11"';
    fc.assert(
      fc.property(fc.array(fc.nat(text.length), { maxLength: 6 }), (cuts) => {
        const renamer = new ModelRenamer('a@1', 'a');
        const at = [0, ...cuts.sort((a, b) => a - b), text.length];
        const out = at.slice(1).map((to, i) => renamer.push(Buffer.from(text.slice(at[i], to))));
        expect(Buffer.concat([...out, renamer.end()]).toString()).toBe(wanted);
      }),
    );
  });
});

describe('events', () => {
  it('go through whole', () => {
    const gate = new EventGate();
    const push = (text: string): readonly [string, boolean] => {
      const { bytes, hasEvent } = gate.push(Buffer.from(text));
      return [bytes.toString(), hasEvent];
    };
    expect(push(': a\n')).toEqual(['', false]);
    expect(push('\n: b\n\nda')).toEqual([': a\n\n: b\n\n', false]);
    expect(push('ta: 1\n\ndata: 2\n\ndat')).toEqual(['data: 1\n\ndata: 2\n\n', true]);
    expect([gate.isBroken, gate.end().toString()]).toEqual([false, 'dat']);
  });

  it('that are endless go through in parts', () => {
    const gate = new EventGate();
    const { bytes } = gate.push(Buffer.alloc((1 << 20) + 10, 'x'));
    expect([bytes.length, gate.isBroken]).toEqual([(1 << 20) + 10, true]);
  });
});

describe('metrics', () => {
  it('are read by name, and nothing absurd is believed', () => {
    expect(
      readMetrics(
        [
          '# HELP vllm:num_requests_waiting x',
          'vllm:num_requests_running{engine="0",model_name="a}"} 3',
          'vllm:num_requests_running{engine="1",model_name="b"} 4.0',
          'vllm:num_requests_waiting NaN',
          'vllm:kv_cache_usage_perc{engine="0"} 0.5',
          'vllm:request_prompt_tokens_sum 100',
          'vllm:request_prompt_tokens_count 4',
          'vllm:lora_requests_info{max_lora="4",running_lora_adapters=""} 10',
          'vllm:lora_requests_info{max_lora="8",running_lora_adapters="x"} 11',
          'vllm:generation_tokens_total -5',
          'vllm:',
        ].join('\n'),
      ),
    ).toEqual({ running: 7, waiting: 0, cacheUse: 0.5, meanPromptTokens: 25, writtenTokens: 0, slots: 8 });
  });
});

describe('headers', () => {
  it('of a connection stay on it', () => {
    const sent = forwardedHeaders(
      {
        ...{ connection: 'close, X-Hop', 'x-hop': '1', 'transfer-encoding': 'chunked', 'content-length': '3', te: 'x' },
        ...{ host: 'h', upgrade: 'u', expect: '100-continue', authorization: 'Bearer c', accept: 'a', trailer: 't' },
        ...{ 'accept-encoding': 'gzip', 'x-forwarded-for': '1.1.1.1' },
      },
      { requestId: 'id', length: 9, key: 'r', hidesKey: true, clientAddress: '2.2.2.2' },
    );
    expect(sent).toEqual({
      ...{ accept: 'a', authorization: 'Bearer r', 'x-request-id': 'id', 'content-length': 9 },
      ...{ 'accept-encoding': 'identity', 'x-forwarded-for': '1.1.1.1, 2.2.2.2' },
    });
    expect(forwardedHeaders({ authorization: 'x' }, { requestId: 'id', hidesKey: true })['authorization']).toBe(
      undefined,
    );
    expect(forwardedHeaders({ authorization: 'x' }, { requestId: 'id', hidesKey: false })['authorization']).toBe('x');
  });

  it('of an answer have its length only where it passes unchanged', () => {
    const headers = { 'content-length': '5', 'content-type': 't', connection: 'keep-alive', 'set-cookie': ['a', 'b'] };
    expect(returnedHeaders(headers, true)).toEqual({
      'content-length': '5',
      'content-type': 't',
      'set-cookie': ['a', 'b'],
    });
    expect(returnedHeaders(headers, false)).toEqual({ 'content-type': 't', 'set-cookie': ['a', 'b'] });
  });
});
