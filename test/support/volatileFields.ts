/** Top-level fields of results_*.json that differ between equal runs. All others are the same to the byte. */
export const VOLATILE_FIELDS = [
  'date',
  'start_time',
  'end_time',
  'total_evaluation_time_seconds',
  'throughput',
] as const;
