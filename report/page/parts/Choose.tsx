/** Choosing one of a few things: nothing to choose is not shown. */
export interface ChooseProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly { readonly value: T; readonly title: string }[];
  readonly onChange: (value: T) => void;
  readonly isShownAlone?: boolean;
}

export function Choose<T extends string>({ label, value, options, onChange, isShownAlone = false }: ChooseProps<T>) {
  if (options.length < 2 && !isShownAlone) return null;
  return (
    <label class="choose">
      <span>{label}</span>
      <select
        aria-label={label}
        value={value}
        onChange={({ currentTarget }) => {
          const chosen = options.find((option) => option.value === currentTarget.value);
          if (chosen !== undefined) onChange(chosen.value);
        }}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.title}
          </option>
        ))}
      </select>
    </label>
  );
}
