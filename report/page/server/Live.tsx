/** What the server does at the moment, read from /metrics while the page is looked at. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Between, linesOf, type Reading, readingOf, type Spread } from '../../document/metricsText.js';
import { Shown } from '../parts/Elements.js';
import type { Server } from './api.js';
import { Spark } from './Spark.js';

const EVERY_MS = 2000;
/** Readings that are kept: three minutes. */
const KEPT = 90;

interface History {
  readonly readings: readonly Reading[];
  readonly failure: string | undefined;
}

const NOTHING: History = { readings: [], failure: undefined };

/** Adds a reading; one of a server that was started anew is the first. */
function added(readings: readonly Reading[], next: Reading): readonly Reading[] {
  const last = readings.at(-1);
  if (last !== undefined && new Between(last, next).isRestarted) return [next];
  return [...readings, next].slice(-KEPT);
}

/** Readings of a model, as long as the page is shown. */
function useReadings(server: Server, model: string): History {
  const [history, setHistory] = useState(NOTHING);
  const asking = useRef(0);
  useEffect(() => {
    const own = ++asking.current;
    setHistory(NOTHING);
    const read = async (): Promise<void> => {
      if (document.hidden) return;
      try {
        const reading = readingOf(linesOf(await server.metrics()), model, performance.now());
        if (own === asking.current)
          setHistory(({ readings }) => ({ readings: added(readings, reading), failure: undefined }));
      } catch (error) {
        const failure = error instanceof Error ? error.message : String(error);
        if (own === asking.current) setHistory(({ readings }) => ({ readings, failure }));
      }
    };
    void read();
    const timer = setInterval(() => void read(), EVERY_MS);
    const onShown = (): void => void read();
    document.addEventListener('visibilitychange', onShown);
    return () => {
      asking.current++;
      clearInterval(timer);
      document.removeEventListener('visibilitychange', onShown);
    };
  }, [server, model]);
  return history;
}

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const count = (value: number): string => whole.format(value);
const share = (value: number): string => `${(100 * value).toFixed(value < 0.0995 && value > 0 ? 1 : 0)} %`;

export function time(seconds: number): string {
  if (seconds === Infinity) return 'more';
  if (seconds < 0.0995) return `${(1000 * seconds).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  return seconds < 9.95 ? `${seconds.toFixed(2)} s` : `${seconds.toFixed(0)} s`;
}

export function Live({ server, model }: { readonly server: Server; readonly model: string }) {
  const { readings, failure } = useReadings(server, model);
  const pairs = readings.slice(1).map((after, i) => new Between(readings[i]!, after));
  const last = readings.at(-1);
  const valueOf = (reading: Reading | undefined, name: string): number => reading?.values.get(name) ?? 0;
  const gauge = (name: string): readonly number[] => readings.map((reading) => valueOf(reading, name));
  const rate = (name: string): readonly number[] => pairs.map((pair) => pair.rate(name));
  const spreads = (name: string): readonly (Spread | undefined)[] => pairs.map((pair) => pair.spread(name));
  const mean = (all: readonly (Spread | undefined)[]) => all.map((each) => each?.mean);
  const within = (all: readonly (Spread | undefined)[]) => all.map((each) => each?.within);
  const [first, next] = [spreads('vllm:time_to_first_token_seconds'), spreads('vllm:inter_token_latency_seconds')];
  const hits = pairs.map((pair) => {
    const asked = pair.growth('vllm:prefix_cache_queries_total');
    return asked > 0 ? pair.growth('vllm:prefix_cache_hits_total') / asked : undefined;
  });
  const times = (all: readonly (Spread | undefined)[]) => [
    { name: 'mean', values: mean(all) },
    { name: '99 % within', values: within(all) },
  ];
  return (
    <>
      {failure !== undefined && (
        <p class="failed" role="alert">
          The server does not say what it does: <Shown text={failure} />
        </p>
      )}
      <div class="sparks">
        <Spark
          title="Tokens a second"
          series={[
            { name: 'written', values: rate('vllm:generation_tokens_total') },
            { name: 'read', values: rate('vllm:prompt_tokens_total') },
          ]}
          show={count}
          length={KEPT}
        />
        <Spark
          title="Requests"
          series={[
            { name: 'running', values: gauge('vllm:num_requests_running') },
            { name: 'waiting', values: gauge('vllm:num_requests_waiting') },
          ]}
          show={count}
          length={KEPT}
        />
        <Spark title="Time to first token" series={times(first)} show={time} length={KEPT} />
        <Spark title="Time between tokens" series={times(next)} show={time} length={KEPT} />
        <Spark
          title="Cache in use"
          series={[{ name: 'of its pages', values: gauge('vllm:kv_cache_usage_perc') }]}
          show={share}
          top={1}
          length={KEPT}
        />
        <Spark
          title="Prompts found in the cache"
          series={[{ name: 'of their tokens', values: hits }]}
          show={share}
          top={1}
          length={KEPT}
        />
      </div>
      {last !== undefined && (
        <p class="note" data-totals>
          Since the server began: {count(valueOf(last, 'vllm:request_success_total'))} texts,{' '}
          {count(valueOf(last, 'vllm:generation_tokens_total'))} tokens. Charts show the last three minutes.
        </p>
      )}
    </>
  );
}
