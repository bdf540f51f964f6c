/** Whether Slurm is installed, for the test that starts one. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { readSettings } from '../../settings.js';

/** Where its daemons are, which users seldom have on PATH. */
export const SLURM_PATH = ['/usr/local/sbin', '/usr/sbin', '/sbin'].join(delimiter);

export const hasSlurm = ['slurmctld', 'slurmd', 'sbatch', 'srun', 'scontrol'].every((name) =>
  [...readSettings().path.split(delimiter), ...SLURM_PATH.split(delimiter)].some((folder) =>
    existsSync(join(folder, name)),
  ),
);
