"""MOS and MOS++ (Anwar et al., HPDC 2016): figures, tables and claims."""
