/** What an answer is asked for with: the model, how it is asked, and how tokens are drawn. */
import type { Model, Settings } from './api.js';

/** Numbers as they are typed: empty ones are left to the server. */
export interface Typed {
  readonly temperature: string;
  readonly topP: string;
  readonly maxTokens: string;
  readonly seed: string;
}

export const UNTYPED: Typed = { temperature: '', topP: '', maxTokens: '256', seed: '' };

export function numberOf(typed: string): number | undefined {
  const value = Number(typed.trim());
  return typed.trim() === '' || !Number.isFinite(value) ? undefined : value;
}

interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly hint: string;
  readonly isWhole?: boolean;
  readonly onChange: (value: string) => void;
}

const Field = ({ label, value, hint, isWhole = false, onChange }: FieldProps) => (
  <label class="choose">
    <span>{label}</span>
    <input
      type="text"
      size={8}
      inputMode={isWhole ? 'numeric' : 'decimal'}
      autocomplete="off"
      placeholder={hint}
      value={value}
      aria-invalid={value.trim() !== '' && numberOf(value) === undefined}
      onInput={({ currentTarget }) => onChange(currentTarget.value)}
    />
  </label>
);

export interface OptionsProps {
  readonly models: readonly Model[];
  readonly settings: Settings;
  readonly typed: Typed;
  readonly onChange: (change: Partial<Settings>) => void;
  readonly onType: (change: Partial<Typed>) => void;
}

/** Ways of searching, as the server calls them. */
const SEARCHES = ['beam', 'best-of-n', 'weighted', 'dvts', 'rebase', 'majority'] as const;

export function Options({ models, settings, typed, onChange, onType }: OptionsProps) {
  const { model, isChat, system, search } = settings;
  const canSearch = isChat && models.some(({ givesScores }) => givesScores);
  return (
    <details class="options" open>
      <summary>Model and options</summary>
      <div class="controls">
        <label class="choose">
          <span>Model</span>
          <select value={model} onChange={({ currentTarget }) => onChange({ model: currentTarget.value })}>
            {models.map(({ id }) => (
              <option key={id} value={id}>
                {id}
              </option>
            ))}
          </select>
        </label>
        <label class="choose">
          <span>As</span>
          <select
            value={isChat ? 'chat' : 'text'}
            onChange={({ currentTarget }) => onChange({ isChat: currentTarget.value === 'chat' })}
          >
            <option value="chat">a chat</option>
            <option value="text">a text to continue</option>
          </select>
        </label>
        {canSearch && (
          <label class="choose">
            <span>Search</span>
            <select value={search} onChange={({ currentTarget }) => onChange({ search: currentTarget.value })}>
              <option value="">none: one answer</option>
              {SEARCHES.map((method) => (
                <option key={method} value={method}>
                  {method}
                </option>
              ))}
            </select>
          </label>
        )}
        <Field
          label="Temperature"
          hint="1"
          value={typed.temperature}
          onChange={(temperature) => onType({ temperature })}
        />
        <Field label="Top p" hint="1" value={typed.topP} onChange={(topP) => onType({ topP })} />
        <Field
          label={isChat && search !== '' ? 'Most tokens of a step' : 'Most tokens'}
          hint="all"
          isWhole
          value={typed.maxTokens}
          onChange={(maxTokens) => onType({ maxTokens })}
        />
        <Field label="Seed" hint="random" isWhole value={typed.seed} onChange={(seed) => onType({ seed })} />
      </div>
      {isChat && (
        <label class="choose system">
          <span>System prompt</span>
          <textarea
            rows={2}
            value={system}
            placeholder="none"
            onInput={({ currentTarget }) => onChange({ system: currentTarget.value })}
          />
        </label>
      )}
    </details>
  );
}
