/** Names of choices. */
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

export const letter = (choice: number): string => LETTERS[choice] ?? String(choice + 1);
