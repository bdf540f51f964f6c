/** The Ui of a command: it has an end. */
import type { Ui } from '../driver/requests.js';

export interface LiveUi extends Ui {
  /** Ends the current phase and leaves the terminal as it was found. Nothing is drawn afterwards. */
  close(): void;
}
