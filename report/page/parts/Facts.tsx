/** Names and what they stand for, side by side. */
import { Shown } from './Text.js';

interface FactsProps {
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly isSmall?: boolean;
}

export const Facts = ({ facts, isSmall = false }: FactsProps) => (
  <dl class={isSmall ? 'facts small' : 'facts'}>
    {facts.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>
          <Shown text={value} />
        </dd>
      </div>
    ))}
  </dl>
);
